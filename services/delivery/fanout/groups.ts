/**
 * The member groups of a space in this process: as many as are in force, and another number once it is wanted.
 *
 * Siblings: `hold.ts` the groups of one number, `regroup.ts` how one number follows another.
 *
 * Invariants
 * 1. The markers say how many there are (`shared/broker/markers.ts`). Every process looks again and again, and at
 *    once when a writer failed; whoever lets go of the old groups begins with the new ones by what is stored.
 * 2. Who changes the number holds the lease of the first group, so that two do not hinder each other; the markers
 *    fence it, and not the lease.
 * 3. A change is asked of the loop that writes its group. Where that is another process, the refusal names it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type LeaseHolder, type LeasePlace, groupLease, readLease, takeLease } from "../../../shared/broker/lease.ts";
import { keepRenewed } from "../../../shared/broker/lease-keep.ts";
import { type Setting, isRegroupDue, markersInForce, readMarker } from "../../../shared/broker/markers.ts";
import { createWriter } from "../../../shared/broker/write.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type Membership, WRITER_DETAIL } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { type Lifecycle, groupOf } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { type Bell, createBell } from "./bell.ts";
import { type HoldEvent, type Holding, away, holdGroups, pause } from "./hold.ts";
import { regroup } from "./regroup.ts";
import type { Change } from "./requests.ts";

export type GroupsOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  /** How many groups are wanted. */
  readonly setting: Setting;
  /** Of this process. */
  readonly instanceId: string;
  /** As whom this run takes leases. */
  readonly who: LeaseHolder;
  /** Processes that serve the space now, this one among them. */
  readonly peers: number;
  readonly tell: (event: GroupEvent) => void;
};

/** `numbered`: so many groups are in force from now on, and there is none beyond them. */
export type GroupEvent = HoldEvent | { readonly type: "numbered"; readonly groups: number };

export type Groups = {
  /** Asks the writer of the caller's group; resolves once the change is stored. */
  readonly change: (wanted: WantedChange, caller: Caller, signal: AbortSignal) => Promise<Membership | undefined>;
  readonly stop: () => Promise<void>;
};

export type WantedChange =
  | { readonly kind: "join"; readonly pattern: string; readonly cursor: number }
  | { readonly kind: "leave"; readonly pattern: string };

/** How soon another number is seen. */
const LOOK_MS = 1000;
/** The same while another process changes it. */
const BUSY_MS = 250;
const STOP_MS = 1500;

type Keeping = {
  readonly bell: Bell;
  readonly stopping: AbortSignal;
  /** What is held now; nothing while the number is being changed. */
  holding: Holding | undefined;
};

export function keepGroups(options: GroupsOptions): Groups {
  const { nc, space, instanceId } = options;
  const stopping = new AbortController();
  const bell = createBell(nc, space);
  stopping.signal.addEventListener("abort", bell.ring, { once: true });
  const keeping: Keeping = { bell, stopping: stopping.signal, holding: undefined };
  const running = keep(options, keeping);

  return {
    change: async (wanted, caller, signal) => {
      const { holding } = keeping;
      if (holding === undefined) throw away();
      const lifecycle: Lifecycle = { ...caller, key: ledgerKey.acl(caller.principal, caller.uid) };
      const n = groupOf(lifecycle.key, holding.groups);
      const requests = holding.requests(n);
      if (requests === undefined) throw await elsewhere(nc, groupLease(space, n), instanceId);
      const change: Change = { ...wanted, lifecycle };
      return requests.ask(change, signal);
    },
    stop: async () => {
      stopping.abort();
      // A broker that is away gives no lease back, and a batch that nobody confirms is settled by the next claim.
      await Promise.race([running, sleep(STOP_MS, undefined, { ref: false })]);
      bell.stop();
    },
  };
}

/** What is stored says what comes next, each time anew. */
async function keep(options: GroupsOptions, keeping: Keeping): Promise<void> {
  const { stopping } = keeping;
  while (!stopping.aborted) {
    try {
      const { groups, isDue } = await look(options);
      if (!isDue) await holdWhile(options, keeping, groups);
      else if (!(await regroupAlone(options, keeping))) await pause(BUSY_MS, stopping);
    } catch (thrown) {
      options.tell({ type: "failed", group: 0, error: toCotalError(thrown) });
      await pause(LOOK_MS, stopping);
    }
  }
}

async function look({ nc, space, setting }: GroupsOptions) {
  const found = await markersInForce(nc, space, setting);
  return { groups: found.length, isDue: isRegroupDue(found, await setting()) };
}

/** Does the first marker, which every change begins with, say what is wanted? Two reads, however many groups there are. */
async function isQuiet({ nc, space, setting }: GroupsOptions, groups: number): Promise<boolean> {
  const [first, wanted] = await Promise.all([readMarker(nc, { space, group: 0 }), setting()]);
  return wanted === groups && first.row?.of === groups && first.row.state === undefined;
}

/** Holds groups of this number for as long as it is in force and none other is wanted. */
async function holdWhile(options: GroupsOptions, keeping: Keeping, groups: number): Promise<void> {
  const { bell, stopping } = keeping;
  const ending = new AbortController();
  let nudge = new AbortController();
  const onStop = (): void => {
    ending.abort();
    nudge.abort();
  };
  const tell = (event: HoldEvent): void => {
    options.tell(event);
    // Perhaps its marker was sealed.
    if (event.type === "failed") nudge.abort();
  };
  stopping.addEventListener("abort", onStop, { once: true });
  options.tell({ type: "numbered", groups });
  const holding = holdGroups({ ...options, groups, bell, tell }, ending.signal);
  keeping.holding = holding;
  try {
    while (!ending.signal.aborted && !stopping.aborted) {
      await pause(LOOK_MS, nudge.signal);
      nudge = new AbortController();
      if (await isQuiet(options, groups).catch(() => true)) continue;
      const now = await look(options).catch(() => undefined);
      if (now !== undefined && (now.isDue || now.groups !== groups)) ending.abort();
    }
  } finally {
    stopping.removeEventListener("abort", onStop);
    ending.abort();
    keeping.holding = undefined;
    await holding.ended;
  }
}

/** Did this process change the number? False where another one holds the first group: it will, or lets go of it. */
async function regroupAlone(options: GroupsOptions, { bell, stopping }: Keeping): Promise<boolean> {
  const { nc, space, instanceId, who, setting, tell } = options;
  const taken = await takeLease(nc, groupLease(space, 0), who);
  if (taken.kind !== "held") return false;
  const ending = new AbortController();
  const signal = AbortSignal.any([stopping, ending.signal]);
  const renewing = keepRenewed(taken.hold, signal).finally(() => {
    ending.abort();
    bell.ring();
  });
  try {
    const parts = { nc, space, instanceId, bell, writer: createWriter({ nc }), wanted: setting };
    const made = await regroup({ ...parts, tell: (group, event) => tell({ ...event, group }) }, signal);
    return made !== undefined;
  } finally {
    ending.abort();
    await renewing;
    if (taken.hold.isHeld()) await taken.hold.release().catch(() => undefined);
  }
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
