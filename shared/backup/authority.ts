/**
 * The ledger of a restored space (decisions H35, H47): what was is over, and who is enrolled is so anew.
 *
 * ```
 * every UID reserved, its gate retired ─▶ every alias ended ─▶ read lists ─▶ enrolments
 * ```
 *
 * Invariants
 * 1. A UID of the backup never names a lifecycle again, and no credential of it is entered: its gate is born
 *    `retired`, and nothing leaves that state.
 * 2. Nobody's secret comes back: a managed agent's is drawn anew by whoever grants it.
 * 3. Read lists are written in the order they had, so what a marker says was swept can be said of the new ones.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { ensureConsumer } from "../broker/ensure.ts";
import { dlvConsumer, dmConsumer } from "../broker/resources.ts";
import { activate } from "../ledger/activation.ts";
import { rootCredentialId } from "../ledger/root.ts";
import type { LedgerStore } from "../ledger/store.ts";
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { spaceNames } from "../protocol/base/names.ts";
import { type RandomBytes, dotForm, drawLifecycleUid } from "../protocol/base/principals.ts";
import { type ActorRow, actorKey } from "../protocol/ledger/actor-rows.ts";
import {
  type AclRow,
  type FrontierRow,
  type GateRow,
  type HeadRow,
  UidRow,
  ledgerKey,
} from "../protocol/ledger/rows.ts";
import { restoredOp } from "../ledger/restored.ts";
import { Line, type Manifest, partFile } from "./format.ts";
import { readLines } from "./lines.ts";
import { type Enrolment, type Plan, rowOf } from "./plan.ts";
import { inParallel } from "./parallel.ts";

export type AuthorityOptions = {
  readonly nc: NatsConnection;
  readonly ledger: LedgerStore;
  readonly folder: string;
  readonly manifest: Manifest;
  readonly plan: Plan;
  readonly random: RandomBytes;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

/** Where the new read lists stand: sequences before and after, in the order of both. */
export type WrittenLists = readonly { readonly before: number; readonly after: number }[];

/** Everything that was is over. Returns how many UIDs are reserved. */
export async function endAll({ ledger, folder, manifest, plan }: AuthorityOptions): Promise<number> {
  const op = { opId: `restore-${manifest.digest.slice(-26)}`, kind: "retirement" } as const;
  const { bucket } = spaceNames(manifest.space);
  let reserved = 0;
  const ended = async function* ended(): AsyncGenerator<() => Promise<unknown>> {
    for await (const line of readLines(folder, partFile("records"), Line)) {
      const { key, value } = rowOf(bucket.records, line);
      const row = UidRow.safeParse(value);
      // Reservations and frontiers as they were; heads are written below, all of them ended.
      if (!key.startsWith("lifecycle.")) yield () => ledger.create("records", key, value as object);
      if (!row.success) continue;
      reserved += 1;
      const gate: GateRow = { state: "retired", generation: 1, op };
      yield () => ledger.create("auth", ledgerKey.gate(row.data.lifecycleUid), gate);
    }
    for (const head of plan.heads) yield () => endHead(ledger, manifest, op.opId, head);
  };
  await inParallel(ended());
  return reserved;
}

async function endHead(ledger: LedgerStore, { stores, space }: Manifest, opId: string, head: HeadRow): Promise<void> {
  const { owner, actor, lifecycleUid, managerInstance, processEpoch } = head;
  const ended: HeadRow = { owner, actor, lifecycleUid, managerInstance, processEpoch, state: "retired" };
  await ledger.create("records", ledgerKey.head(head), ended);
  if (head.state !== "active") return;
  const names = spaceNames(space);
  const streams = { [names.dm]: stores.dm?.lastSeq ?? 0, [names.dlv]: stores.dlv?.lastSeq ?? 0 };
  const frontier: FrontierRow = { lifecycleUid, opId, streams };
  await ledger.create("records", ledgerKey.frontier(lifecycleUid), frontier);
}

/** Read lists of who is enrolled, one after another. */
export async function writeLists({ ledger, plan, now }: AuthorityOptions): Promise<WrittenLists> {
  const written: { before: number; after: number }[] = [];
  for (const one of [...plan.enrolled.values()].toSorted((a, b) => a.aclSeq - b.aclSeq)) {
    const row: AclRow = { ...one.acl, credential: rootCredentialId(one.uid, 1), at: now() };
    const after = await ledger.create("acl", ledgerKey.acl(one.principal, one.uid), row);
    written.push({ before: one.aclSeq, after });
  }
  return written;
}

/** Grants of a space that people sign in to; one who has no inbox yet gets a UID for when he comes. */
export async function writeActors(options: AuthorityOptions): Promise<number> {
  const { ledger, plan, random, now } = options;
  const uids = new Map(
    plan.actors.map((row) => {
      const former = lifecycleOf(row);
      const { lifecycleUid } = row;
      const fresh = row.state === "revoked" ? lifecycleUid : drawLifecycleUid(random);
      return [former, plan.enrolled.get(former)?.uid ?? fresh] as const;
    }),
  );
  const rows = async function* rows(): AsyncGenerator<() => Promise<unknown>> {
    for (const row of plan.actors) {
      const { secretDigest: _, parent, ...kept } = row;
      const above = parent === undefined ? undefined : uids.get(lifecycleOf(parent));
      const anew: ActorRow = {
        ...kept,
        lifecycleUid: uids.get(lifecycleOf(row)) ?? row.lifecycleUid,
        ...(parent === undefined ? {} : { parent: { ...parent, lifecycleUid: above ?? parent.lifecycleUid } }),
        at: now(),
      };
      yield () => ledger.create("auth", actorKey.actor(row), anew);
    }
  };
  await inParallel(rows());
  return plan.actors.length;
}

const lifecycleOf = (row: { owner: string; actor: string; lifecycleUid: string }): string =>
  `${dotForm(row)}.${row.lifecycleUid}`;

/** Activates everybody with the durables that go on where the former ones had come to. */
export async function enrolAll(options: AuthorityOptions): Promise<void> {
  const each = async function* each(): AsyncGenerator<() => Promise<unknown>> {
    for (const one of options.plan.enrolled.values()) yield () => enrol(options, one);
  };
  await inParallel(each());
}

async function enrol({ nc, ledger, manifest, random, now }: AuthorityOptions, one: Enrolment): Promise<void> {
  const { principal, uid } = one;
  await activate(
    ledger,
    {
      opId: restoredOp(manifest.auth, uid),
      principal,
      requestDigest: canonicalDigest({ principal: dotForm(principal), uid }),
      managerInstance: "restore",
      uid,
      now: now(),
      random,
    },
    async () => {
      await ensureConsumer(nc, dmConsumer(manifest.space, principal, uid, one.dmNext));
      await ensureConsumer(nc, dlvConsumer(manifest.space, principal, uid, one.dlvNext));
    },
  );
}
