/**
 * From rows to the permissions inside a user JWT.
 *
 * Invariants
 * 1. Every subscribe allow that ends in `*` gets the deny `<entry>.>` beside it: the broker admits
 *    `a.>` under `a.*` otherwise (measured; decision H16).
 * 2. An empty side is an explicit deny of everything: NATS reads an absent list as "all allowed".
 * 3. No deny cuts into another entry. At the broker a deny beats every allow, so `a.*` beside `a.b.c`
 *    would take `a.b.c` away without a word (measured): such a pair is refused, with both named.
 */
import { contains, overlap } from "../protocol/base/channels.ts";
import { badRequest } from "../protocol/base/errors.ts";
import type { Account, Row } from "./row.ts";

export type PermissionSide = { readonly allow: string[]; readonly deny: string[] };
export type Permissions = { readonly pub: PermissionSide; readonly sub: PermissionSide };

type SubRow = Extract<Row, { op: "sub" }>;

/** Permissions of one credential: the rows that hold in its account. Throws `bad-request` (invariant 3). */
export function permissionsOf(rows: readonly Row[], account: Account): Permissions {
  const here = rows.filter((row) => row.account === account);
  const publish = unique(here.filter((row) => row.op === "pub").map((row) => row.subject));
  const subs = withoutContained(here.filter((row) => row.op === "sub"));
  refuseCuts(subs);
  const paired = unique(subs.flatMap((row) => pairedDeny(row.subject)));
  return {
    pub: publish.length === 0 ? NOTHING : { allow: publish, deny: [] },
    sub: subs.length === 0 ? NOTHING : { allow: unique(subs.map(subscribeEntry)), deny: paired },
  };
}

/** Drops what another row allows already, so that `a.*` beside `a.>` brings no deny of its own. */
function withoutContained(subs: readonly SubRow[]): SubRow[] {
  return subs.filter(
    (row) =>
      row.queue !== undefined ||
      !subs.some(
        (other) => other.queue === undefined && other.subject !== row.subject && contains(other.subject, row.subject),
      ),
  );
}

function refuseCuts(subs: readonly SubRow[]): void {
  for (const row of subs) {
    const [deny] = pairedDeny(row.subject);
    const cut = deny === undefined ? undefined : subs.find((other) => overlap(deny, other.subject));
    if (cut === undefined) continue;
    throw badRequest(
      `one credential can't read both ${row.subject} and ${cut.subject}: the broker would refuse the second`,
      "where one entry ends in *, name channels of that depth only; or give the whole family, which ends in >",
    );
  }
}

const NOTHING: PermissionSide = { allow: [], deny: [">"] };

function subscribeEntry(row: SubRow): string {
  return row.queue === undefined ? row.subject : `${row.subject} ${row.queue}`;
}

/** The deny that keeps a subscribe allow at its exact arity. */
export function pairedDeny(subject: string): string[] {
  return subject === "*" || subject.endsWith(".*") ? [`${subject}.>`] : [];
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list)];
}
