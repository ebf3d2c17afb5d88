/**
 * The member groups of one number: which of them this process writes.
 *
 * Invariants
 * 1. The lease says who should write; the marker says who can (`marker.ts`). Two that believe to hold a group
 *    waste effort and break nothing.
 * 2. A writer that failed is begun anew while the lease is held, each time later.
 * 3. A later process takes groups from earlier ones at once, up to its share of them: so a restart is not waited for,
 *    and processes that run side by side share the work. Beyond that it takes what is free or has expired.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { isCode } from "../../../shared/broker/errors.ts";
import { type Hold, type LeaseHolder, groupLease, takeLease } from "../../../shared/broker/lease.ts";
import { keepRenewed } from "../../../shared/broker/lease-keep.ts";
import { createWriter } from "../../../shared/broker/write.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../../../shared/protocol/base/errors.ts";
import type { Bell } from "./bell.ts";
import { type Requests, createRequests } from "./requests.ts";
import { type FanoutEvent, writeGroup } from "./writer.ts";

export type HoldEvent =
  | (FanoutEvent & { readonly group: number })
  | { readonly type: "held" | "lost"; readonly group: number }
  | { readonly type: "failed"; readonly group: number; readonly error: CotalError };

export type HoldOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly groups: number;
  /** Of this process. */
  readonly instanceId: string;
  /** As whom this run takes leases. */
  readonly who: LeaseHolder;
  /** Processes that serve the space now, this one among them. */
  readonly peers: number;
  readonly bell: Bell;
  readonly tell: (event: HoldEvent) => void;
};

export type Holding = {
  readonly groups: number;
  /** `undefined` for a group that this process does not write. */
  readonly requests: (group: number) => Requests | undefined;
  /** Resolves once the signal came and everything is given back. */
  readonly ended: Promise<void>;
};

/** How soon a group that nobody holds is taken. */
const LOOK_MS = 1000;
const AGAIN_MS = { first: 50, most: 5000 };

type Group = { readonly bell: Bell; readonly requests: Requests; isHeld: boolean };

export function holdGroups(options: HoldOptions, stopping: AbortSignal): Holding {
  const { groups, peers, bell } = options;
  const all: Group[] = Array.from({ length: groups }, () => {
    const own = bell.another();
    stopping.addEventListener("abort", own.stop, { once: true });
    return { bell: own, requests: createRequests(own.ring), isHeld: false };
  });
  const share = { left: Math.ceil(groups / peers) };
  const running = all.map((group, n) => keepGroup(options, { group, n, share }, stopping));
  return {
    groups,
    requests: (n) => (all[n]?.isHeld === true ? all[n].requests : undefined),
    ended: Promise.all(running).then(() => undefined),
  };
}

type Keeping = {
  readonly group: Group;
  readonly n: number;
  /** Groups that this process may still take from an earlier one. */
  readonly share: { left: number };
};

async function keepGroup(options: HoldOptions, keeping: Keeping, stopping: AbortSignal): Promise<void> {
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

async function takeGroup({ nc, space, who }: HoldOptions, { n, share }: Keeping): Promise<Hold | undefined> {
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

async function holdGroup(options: HoldOptions, keeping: Keeping, hold: Hold, stopping: AbortSignal): Promise<void> {
  const { group, n } = keeping;
  const ending = new AbortController();
  const signal = AbortSignal.any([stopping, ending.signal]);
  options.tell({ type: "held", group: n });
  group.isHeld = true;
  const renewing = keepRenewed(hold, signal).finally(() => {
    ending.abort();
    group.bell.ring();
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

async function writeAgain(options: HoldOptions, { group, n }: Keeping, hold: Hold, signal: AbortSignal): Promise<void> {
  const { nc, space, groups, instanceId, tell } = options;
  let wait = AGAIN_MS.first;
  while (!signal.aborted) {
    const began = performance.now();
    try {
      const writer = createWriter({ nc });
      const told = (event: FanoutEvent): void => tell({ ...event, group: n });
      const { bell, requests } = group;
      const own = { nc, space, groups, writer, bell, group: n, instanceId, requests };
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

/** Ends early at the signal. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}

/** Nobody can be asked for a change just now. */
export function away(): CotalError {
  return new CotalError(ErrorCode.Unavailable, "nobody writes the copies of this member just now", {
    outcome: Outcome.Unknown,
    next: "ask again: a process takes it up in a moment",
  });
}
