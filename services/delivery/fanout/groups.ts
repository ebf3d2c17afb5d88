/**
 * The member groups of a space: which of them this process writes, and who is told when it is another one.
 *
 * Invariants
 * 1. The lease says who should write; the marker says who can (`marker.ts`). Two that believe to hold a group
 *    waste effort and break nothing.
 * 2. A writer that failed is begun anew while the lease is held, each time later.
 * 3. A later process takes groups from earlier ones at once, up to its share of them: so a restart is not waited for,
 *    and processes that run side by side share the work. Beyond that it takes what is free or has expired.
 * 4. A change is asked of the loop that writes its group. Where that is another process, the refusal names it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import {
  type Hold,
  type LeaseHolder,
  type LeasePlace,
  groupLease,
  readLease,
  takeLease,
} from "../../../shared/broker/lease.ts";
import { keepRenewed } from "../../../shared/broker/lease-keep.ts";
import { isCode } from "../../../shared/broker/errors.ts";
import { createWriter } from "../../../shared/broker/write.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type Membership, WRITER_DETAIL } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { type Lifecycle, groupOf } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { createBell } from "./bell.ts";
import { type Change, type Requests, createRequests } from "./requests.ts";
import { type FanoutEvent, writeGroup } from "./writer.ts";

export type GroupsOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly groups: number;
  /** Of this process. */
  readonly instanceId: string;
  /** As whom this run takes leases. */
  readonly who: LeaseHolder;
  /** Processes that serve the space now, this one among them. */
  readonly peers: number;
  readonly tell: (event: GroupEvent) => void;
};

export type GroupEvent =
  | (FanoutEvent & { readonly group: number })
  | { readonly type: "held" | "lost"; readonly group: number }
  | { readonly type: "failed"; readonly group: number; readonly error: CotalError };

export type Groups = {
  readonly count: number;
  /** Asks the writer of the caller's group; resolves once the change is stored. */
  readonly change: (wanted: WantedChange, caller: Caller, signal: AbortSignal) => Promise<Membership | undefined>;
  readonly stop: () => Promise<void>;
};

export type WantedChange =
  | { readonly kind: "join"; readonly pattern: string; readonly cursor: number }
  | { readonly kind: "leave"; readonly pattern: string };

/** How soon a group that nobody holds is taken. */
const LOOK_MS = 1000;
const STOP_MS = 1500;
const AGAIN_MS = { first: 50, most: 5000 };

type Group = { readonly requests: Requests; isHeld: boolean };

export function keepGroups(options: GroupsOptions): Groups {
  const { nc, space, groups, peers, instanceId } = options;
  const stopping = new AbortController();
  const bell = createBell(nc, space);
  stopping.signal.addEventListener("abort", bell.ring, { once: true });
  const all: Group[] = Array.from({ length: groups }, () => ({ requests: createRequests(bell.ring), isHeld: false }));
  const share = { left: Math.ceil(groups / peers) };
  const running = all.map((group, n) => keepGroup(options, { group, n, bell, share }, stopping.signal));

  return {
    count: groups,
    change: async (wanted, caller, signal) => {
      const lifecycle: Lifecycle = { ...caller, key: ledgerKey.acl(caller.principal, caller.uid) };
      const n = groupOf(lifecycle.key, groups);
      const group = all[n];
      if (group === undefined || !group.isHeld) throw await elsewhere(nc, groupLease(space, n), instanceId);
      const change: Change = { ...wanted, lifecycle };
      return group.requests.ask(change, signal);
    },
    stop: async () => {
      stopping.abort();
      // A broker that is away gives no lease back, and a batch that nobody confirms is settled by the next claim.
      await Promise.race([Promise.all(running), sleep(STOP_MS, undefined, { ref: false })]);
      bell.stop();
    },
  };
}

type Keeping = {
  readonly group: Group;
  readonly n: number;
  readonly bell: ReturnType<typeof createBell>;
  /** Groups that this process may still take from an earlier one. */
  readonly share: { left: number };
};

async function keepGroup(options: GroupsOptions, keeping: Keeping, stopping: AbortSignal): Promise<void> {
  while (!stopping.aborted) {
    try {
      const hold = await takeGroup(options, keeping);
      if (hold !== undefined) await holdGroup(options, keeping, hold, stopping);
    } catch (thrown) {
      options.tell({ type: "failed", group: keeping.n, error: toCotalError(thrown) });
    }
    await pause(LOOK_MS, stopping);
  }
}

async function takeGroup({ nc, space, who }: GroupsOptions, { n, share }: Keeping): Promise<Hold | undefined> {
  const place = groupLease(space, n);
  const { holder, principal } = who;
  // Counted before it is asked for: all groups ask at once.
  const maySucceed = share.left > 0;
  if (maySucceed) share.left -= 1;
  let hold: Hold | undefined;
  try {
    const taken = await takeLease(nc, place, maySucceed ? who : { holder, principal });
    if (taken.kind === "held") ({ hold } = taken);
  } finally {
    if (maySucceed && hold === undefined) share.left += 1;
  }
  return hold;
}

async function holdGroup(options: GroupsOptions, keeping: Keeping, hold: Hold, stopping: AbortSignal): Promise<void> {
  const { group, n } = keeping;
  const ending = new AbortController();
  const signal = AbortSignal.any([stopping, ending.signal]);
  options.tell({ type: "held", group: n });
  group.isHeld = true;
  const renewing = keepRenewed(hold, signal).finally(() => {
    ending.abort();
    keeping.bell.ring();
  });
  try {
    await writeAgain(options, keeping, hold, signal);
  } finally {
    group.isHeld = false;
    ending.abort();
    await renewing;
    group.requests.refuseAll(away());
    options.tell({ type: "lost", group: n });
    if (hold.isHeld()) await hold.release().catch(() => undefined);
  }
}

async function writeAgain(
  options: GroupsOptions,
  { group, n, bell }: Keeping,
  hold: Hold,
  signal: AbortSignal,
): Promise<void> {
  const { nc, space, groups, instanceId, tell } = options;
  let wait = AGAIN_MS.first;
  while (!signal.aborted) {
    const began = performance.now();
    try {
      const writer = createWriter({ nc });
      const told = (event: FanoutEvent): void => tell({ ...event, group: n });
      const own = { nc, space, groups, writer, bell, group: n, instanceId, requests: group.requests };
      await writeGroup({ ...own, tell: told }, signal);
    } catch (thrown) {
      tell({ type: "failed", group: n, error: toCotalError(thrown) });
      // Overtaken: whoever it was may have the lease too, and then nothing is to be fought for.
      if (isCode(thrown, ErrorCode.Conflict) && !(await hold.renew(true).catch(() => true))) return;
      wait = performance.now() - began > AGAIN_MS.most ? AGAIN_MS.first : Math.min(2 * wait, AGAIN_MS.most);
      await pause(wait, signal);
    }
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}

async function elsewhere(nc: NatsConnection, place: LeasePlace, me: string): Promise<CotalError> {
  const [, , instanceId] = (await readLease(nc, place))?.row.holder.split(".") ?? [];
  // An earlier run of this very instance is over, and this one has not taken over yet.
  if (instanceId === undefined || instanceId === me) return away();
  return new CotalError(ErrorCode.FailedPrecondition, "another instance writes the copies of this member", {
    outcome: Outcome.NotExecuted,
    next: "ask that instance",
    details: [{ kind: WRITER_DETAIL, instanceId }],
  });
}

function away(): CotalError {
  return new CotalError(ErrorCode.Unavailable, "nobody writes the copies of this member just now", {
    outcome: Outcome.Unknown,
    next: "ask again: a process takes it up in a moment",
  });
}
