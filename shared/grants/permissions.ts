/**
 * From rows to the permissions inside a user JWT.
 *
 * Invariants
 * 1. Every subscribe allow that ends in `*` gets the deny `<entry>.>` beside it: the broker admits
 *    `a.>` under `a.*` otherwise (measured; decision H16).
 * 2. An empty side is an explicit deny of everything: NATS reads an absent list as "all allowed".
 */
import type { Account, Row } from "./row.ts";

export type PermissionSide = { readonly allow: string[]; readonly deny: string[] };
export type Permissions = { readonly pub: PermissionSide; readonly sub: PermissionSide };

/** Permissions of one credential: the rows that hold in its account. */
export function permissionsOf(rows: readonly Row[], account: Account): Permissions {
  const here = rows.filter((row) => row.account === account);
  const publish = unique(here.filter((row) => row.op === "pub").map((row) => row.subject));
  const subscribe = unique(here.flatMap((row) => (row.op === "sub" ? [subscribeEntry(row)] : [])));
  const paired = unique(here.flatMap((row) => (row.op === "sub" ? pairedDeny(row.subject) : [])));
  return {
    pub: publish.length === 0 ? NOTHING : { allow: publish, deny: [] },
    sub: subscribe.length === 0 ? NOTHING : { allow: subscribe, deny: paired },
  };
}

const NOTHING: PermissionSide = { allow: [], deny: [">"] };

function subscribeEntry(row: Extract<Row, { op: "sub" }>): string {
  return row.queue === undefined ? row.subject : `${row.subject} ${row.queue}`;
}

/** The deny that keeps a subscribe allow at its exact arity. */
export function pairedDeny(subject: string): string[] {
  return subject === "*" || subject.endsWith(".*") ? [`${subject}.>`] : [];
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list)];
}
