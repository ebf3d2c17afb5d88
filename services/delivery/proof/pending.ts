/**
 * What waits for whom: of the caller itself, or, for who runs the space, of every lifecycle that has an inbox.
 *
 * Invariants
 * 1. A member is told of itself alone; what is anybody's comes by another command, which the broker grants to
 *    nobody but an operator.
 * 2. One answer looks at so many lifecycles, and asks so much at a time.
 */
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { leaderLast, isMarker, rowPage } from "../../../shared/broker/reads.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type {
  MemberPending,
  PendingAnswer,
  PendingArgs,
  ProofAnswer,
  TierPending,
} from "../../../shared/protocol/endpoint/proof-shapes.ts";
import { type Lifecycle, parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { AclRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { atOnce } from "../../../shared/broker/at-once.ts";
import {
  type Place,
  type ProofParts,
  copiesPlace,
  dmPlace,
  momentOf,
  pendingAt,
  queuesOf,
  rolePlace,
} from "./tiers.ts";

/** Lifecycles of one answer, and questions to the broker at a time. */
const PAGE = 64;
const AT_ONCE = 32;

export type Listed = { readonly lifecycle: Lifecycle; readonly row: AclRow };

export async function pendingPage(parts: ProofParts, { of, cursor }: PendingArgs): Promise<PendingAnswer> {
  const { store, space } = parts;
  const moment = await momentOf(parts);
  const page = await rowPage(store, spaceNames(space).bucket.acl, {
    limit: PAGE,
    ...(of === undefined ? {} : { filter: `${dotForm(of)}.*` }),
    ...(cursor === undefined ? {} : { cursor }),
  });
  const listed = page.rows.flatMap(({ key, kind, data }) => (kind === "marker" ? [] : readList(key, data)));
  const members = await pendingOf(parts, listed);
  const queues = of === undefined && cursor === undefined ? await queuesOf(parts) : {};
  return { ...moment, members, ...queues, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

/** Throws `failed-precondition` for who has no inbox of its own. */
export async function ownPending(parts: ProofParts, { principal, uid }: Caller): Promise<ProofAnswer> {
  const key = ledgerKey.acl(principal, uid);
  const moment = await momentOf(parts, key);
  const listed = await listOf(parts, { key, principal, uid });
  const [member] = listed === undefined ? [] : await pendingOf(parts, [listed]);
  if (member === undefined) {
    throw new CotalError(ErrorCode.FailedPrecondition, "this credential has no inbox that anything could wait in", {
      outcome: Outcome.NotExecuted,
      next: "use an agent's credential",
    });
  }
  return { about: "inbox", ...moment, member };
}

/** The read list of one lifecycle; `undefined` for one that is over, or has no inbox. */
export async function listOf({ store, space }: ProofParts, lifecycle: Lifecycle): Promise<Listed | undefined> {
  const { acl } = spaceNames(space).bucket;
  const entry = await leaderLast(store, bucketStream(acl), kvKey(acl, lifecycle.key));
  return entry === undefined || isMarker(entry.headers) ? undefined : readList(lifecycle.key, entry.data)[0];
}

/** None for a row of something else, or of who has no inbox. */
export function readList(key: string, data: Uint8Array): Listed[] {
  const lifecycle = parseLifecycle(key);
  if (lifecycle === undefined) return [];
  const row = AclRow.safeParse(parseJson(data)).data;
  return row?.durables === true ? [{ lifecycle, row }] : [];
}

async function pendingOf({ store, space }: ProofParts, listed: readonly Listed[]): Promise<MemberPending[]> {
  // A queue is asked for once, however many hold its role.
  const roles = [...new Set(listed.flatMap(({ row: { role } }) => role ?? []))];
  const asked: (Pick<TierPending, "tier" | "role"> & { readonly place: Place })[] = [
    ...roles.map((role) => ({ tier: "role" as const, role, place: rolePlace(space, role) })),
    ...listed.flatMap(({ lifecycle }) => [
      { tier: "dm" as const, place: dmPlace(space, lifecycle) },
      { tier: "durable" as const, place: copiesPlace(space, lifecycle) },
    ]),
  ];
  const answers = await atOnce(asked, AT_ONCE, ({ place, ...is }) => pendingAt(store, place, is));
  const queues = new Map(answers.slice(0, roles.length).map((answer) => [answer.role, answer]));
  return listed.map(({ lifecycle: { principal, uid }, row: { name, role } }, at) => {
    const own = answers.slice(roles.length + 2 * at, roles.length + 2 * at + 2);
    const queue = role === undefined ? undefined : queues.get(role);
    return { ...principal, uid, name, tiers: queue === undefined ? own : [...own, queue] };
  });
}
