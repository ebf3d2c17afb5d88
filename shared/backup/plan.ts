/**
 * Who is enrolled anew by a restore (decisions H35, H47): worked out from a backup, nothing asked of a broker.
 *
 * Invariants
 * 1. Whoever had an inbox that worked is: head active, gate open, read list, both durables; where people sign in, a
 *    grant too. Everybody else's lifecycle has ended, and a new one begins when somebody mints or signs in.
 * 2. The new UID is drawn, in the member group of the old one: how far the group has come holds for the member too.
 * 3. Chat sessions and the daemons' own lifecycles are never enrolled: they begin anew by themselves.
 */
import { kvKeyOf } from "../protocol/base/broker-subjects.ts";
import { dlvDurable, dmDurable, spaceNames } from "../protocol/base/names.ts";
import { type Principal, type RandomBytes, dotForm, drawLifecycleUid } from "../protocol/base/principals.ts";
import { CHAT_ACTOR } from "../protocol/base/grammar.ts";
import { ActorRow } from "../protocol/ledger/actor-rows.ts";
import { groupOf, parseLifecycle } from "../protocol/ledger/member-rows.ts";
import { AclRow, GateRow, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { CONSUMERS, ConsumerLine, Line, type Manifest, damaged, partFile } from "./format.ts";
import { readLines } from "./lines.ts";

export type Enrolment = {
  readonly principal: Principal;
  /** The lifecycle of the backup, which is over. */
  readonly before: string;
  readonly uid: string;
  readonly acl: AclRow;
  /** Sequence that the read list had in its bucket. */
  readonly aclSeq: number;
  /** Where its durables begin. */
  readonly dmNext: number;
  readonly dlvNext: number;
};

export type Plan = {
  /** By the former lifecycle, `owner.actor.uid`. */
  readonly enrolled: ReadonlyMap<string, Enrolment>;
  /** Heads of all aliases that there were. */
  readonly heads: readonly HeadRow[];
  /** Grants of a space that people sign in to. */
  readonly actors: readonly ActorRow[];
  /** Durables of roles. */
  readonly roles: readonly string[];
};

/** `key` of a line of a bucket's part, and its value as JSON. */
export function rowOf(bucket: string, line: Line): { readonly key: string; readonly value: unknown } {
  const key = kvKeyOf(bucket, line.subject);
  if (key === undefined) throw damaged(`a row of ${bucket} has a subject of another store`);
  try {
    return { key, value: JSON.parse(Buffer.from(line.data, "base64").toString()) as unknown };
  } catch {
    return { key, value: undefined };
  }
}

/** `owner` is the owner of the daemons. */
export async function planOf(folder: string, manifest: Manifest, owner: string, random: RandomBytes): Promise<Plan> {
  const { bucket } = spaceNames(manifest.space);
  const heads: HeadRow[] = [];
  for await (const line of readLines(folder, partFile("records"), Line)) {
    const { key, value } = rowOf(bucket.records, line);
    if (key.startsWith("lifecycle.")) heads.push(HeadRow.parse(value));
  }
  const gates = new Map<string, GateRow["state"]>();
  const actors: ActorRow[] = [];
  for await (const line of readLines(folder, partFile("auth"), Line)) {
    const { key, value } = rowOf(bucket.auth, line);
    if (key.startsWith("gate.")) gates.set(key, GateRow.parse(value).state);
    else if (key.startsWith("actor.")) actors.push(ActorRow.parse(value));
  }
  const lists = new Map<string, { readonly row: AclRow; readonly seq: number }>();
  for await (const line of readLines(folder, partFile("acl"), Line)) {
    const { key, value } = rowOf(bucket.acl, line);
    lists.set(key, { row: AclRow.parse(value), seq: line.seq });
  }
  const next = new Map<string, number>();
  const roles: string[] = [];
  for await (const { part, name, next: at } of readLines(folder, CONSUMERS, ConsumerLine)) {
    next.set(name, at);
    if (part === "task") roles.push(name);
  }
  const granted = new Set(actors.filter(({ state }) => state === "active").map((row) => key(row, row.lifecycleUid)));
  const enrolled = new Map<string, Enrolment>();
  for (const head of heads) {
    const { lifecycleUid: before } = head;
    const former = key(head, before);
    const list = lists.get(former);
    const dmNext = next.get(dmDurable(head, before));
    const dlvNext = next.get(dlvDurable(head, before));
    const lives =
      head.state === "active" &&
      head.owner !== owner &&
      !CHAT_ACTOR.test(head.actor) &&
      gates.get(ledgerKey.gate(before)) === "open" &&
      (manifest.auth === "static" || granted.has(former));
    if (!lives || list?.row.durables !== true || dmNext === undefined || dlvNext === undefined) continue;
    const principal = { owner: head.owner, actor: head.actor };
    const uid = sameGroup(principal, former, manifest.groups, random);
    enrolled.set(former, { principal, before, uid, acl: list.row, aclSeq: list.seq, dmNext, dlvNext });
  }
  return { enrolled, heads, actors, roles };
}

const key = (p: Principal, uid: string): string => `${dotForm(p)}.${uid}`;

function sameGroup(p: Principal, former: string, groups: number, random: RandomBytes): string {
  const group = groupOf(former, groups);
  for (;;) {
    const uid = drawLifecycleUid(random);
    if (groupOf(key(p, uid), groups) === group) return uid;
  }
}

/** The lifecycle that follows one of the backup; `undefined` if nobody was enrolled in its place. */
export function successor(plan: Plan, lifecycle: string): Enrolment | undefined {
  return parseLifecycle(lifecycle) === undefined ? undefined : plan.enrolled.get(lifecycle);
}
