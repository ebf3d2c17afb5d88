/**
 * Leases (H53): which of several instances does a duty that one at a time should do.
 *
 * Siblings: the fence itself is at the effect (the marker of `delivery.md`, a CAS on the row that is
 * written). A lease only spares useless work: two holders at once waste effort and break nothing.
 *
 * Invariants
 * 1. The epoch of a hold is the store's revision of its take: it grows with every take, and no clock
 *    makes it.
 * 2. Only a lost compare-and-set, or a row that says another, ends a hold. Time never does: a process
 *    that was stopped and thawed asks the row (field cases 7 and 8).
 * 3. A row's age is measured by the broker's clock on both sides, so clocks of hosts don't matter.
 *    An expired row may be taken over; the old holder learns it at its next renewal.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { ErrorCode } from "../protocol/base/errors.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { Header } from "../protocol/base/headers.ts";
import { bucketStream, leaseKey, spaceNames } from "../protocol/base/names.ts";
import { streamState } from "./ensure.ts";
import { isCode, isUnknownOutcome } from "./errors.ts";
import { parseJson } from "../protocol/base/json.ts";
import { leaderLast } from "./leader.ts";
import { isMarker } from "./stored-headers.ts";
import { type Writer, createWriter } from "./write.ts";

export const LEASE_RENEW_MS = 5000;
export const LEASE_TTL_MS = 15_000;

/** The row. `epoch` is 0 until the first renewal: the take's own revision is the epoch then. */
export const LeaseRow = z.strictObject({
  v: z.literal(1),
  /** The instance. */
  holder: z.string().min(1),
  principal: z.string(),
  epoch: z.number().int().nonnegative(),
  /** The holder serves the duty, and does not merely hold it. */
  ready: z.boolean(),
  /** Wall clock of the holder in milliseconds, for people. */
  at: z.number(),
});
export type LeaseRow = z.infer<typeof LeaseRow>;

export type LeasePlace = {
  readonly space: string;
  readonly service: string;
  readonly duty: string;
  readonly n?: number;
};

/** Of one member group: who writes its copies (`delivery.md` 3). */
export const groupLease = (space: string, n: number): LeasePlace => ({
  space,
  service: "delivery",
  duty: "fanout",
  n,
});

export type LeaseHolder = {
  readonly holder: string;
  readonly principal: string;
  /** The row is of an earlier run of this very instance: it need not expire to be taken over. */
  readonly succeeds?: (row: LeaseRow) => boolean;
};

export type LeaseClock = {
  /** Wall clock, for `at`. */
  readonly now?: () => number;
  /** The broker's clock in milliseconds; asked of the broker if left out. */
  readonly brokerNow?: () => Promise<number>;
};

export type Hold = {
  readonly epoch: number;
  /** False once the row was seen to be another's. */
  readonly isHeld: () => boolean;
  /** Writes the row anew. False: it is lost. Throws what a write throws when the broker can't be asked. */
  readonly renew: (ready?: boolean) => Promise<boolean>;
  /** Lets another take it at once. Harmless when it was lost. */
  readonly release: () => Promise<void>;
};

export type TakeResult =
  | { readonly kind: "held"; readonly hold: Hold }
  /** Somebody else's, and younger than the TTL. No row: it does not parse. */
  | { readonly kind: "busy"; readonly row: LeaseRow | undefined };

export type FoundLease = {
  readonly row: LeaseRow;
  readonly revision: number;
  readonly epoch: number;
  readonly timeMs: number;
};

type Place = { readonly stream: string; readonly subject: string };

function placeOf({ space, service, duty, n }: LeasePlace): Place {
  const bucket = spaceNames(space).bucket.leases;
  return { stream: bucketStream(bucket), subject: kvKey(bucket, leaseKey(service, duty, n)) };
}

type Stored = {
  readonly revision: number;
  readonly timeMs: number;
  /** Released: a marker stands there. */
  readonly free: boolean;
  /** Left out where nothing parses: perhaps a newer version's row, so it holds for its time too. */
  readonly row: LeaseRow | undefined;
};

async function stored(nc: NatsConnection, { stream, subject }: Place): Promise<Stored | undefined> {
  const entry = await leaderLast(nc, stream, subject);
  if (entry === undefined) return undefined;
  const free = isMarker(entry.headers);
  return {
    revision: entry.seq,
    timeMs: entry.timeMs,
    free,
    row: free ? undefined : LeaseRow.safeParse(parseJson(entry.data)).data,
  };
}

/** Who holds it, by a leader read; `undefined` for nobody. Says nothing of its age. */
export async function readLease(nc: NatsConnection, place: LeasePlace): Promise<FoundLease | undefined> {
  const found = await stored(nc, placeOf(place));
  if (found?.row === undefined) return undefined;
  const { row, revision, timeMs } = found;
  return { row, revision, timeMs, epoch: row.epoch === 0 ? revision : row.epoch };
}

/** The same, telling a row that can't be read from none: a newer version's, perhaps. */
export async function lookAtLease(nc: NatsConnection, place: LeasePlace): Promise<LeaseRow | "none" | "unreadable"> {
  const found = await stored(nc, placeOf(place));
  if (found === undefined || found.free) return "none";
  return found.row ?? "unreadable";
}

/** How many leases of a numbered duty are held now. Numbers are taken from 0 on, so the first that never was ends it. */
export async function countHeld(nc: NatsConnection, duty: Omit<LeasePlace, "n">, most: number): Promise<number> {
  const brokerNow = await brokerClock(nc, placeOf(duty).stream);
  let held = 0;
  for (let n = 0; n < most; n += 1) {
    const found = await stored(nc, placeOf({ ...duty, n }));
    if (found === undefined) break;
    if (!found.free && brokerNow - found.timeMs < LEASE_TTL_MS) held += 1;
  }
  return held;
}

/** Takes a lease that is free, expired, released, or already this holder's. */
export async function takeLease(
  nc: NatsConnection,
  place: LeasePlace,
  who: LeaseHolder,
  clock: LeaseClock = {},
  writer: Writer = createWriter({ nc }),
): Promise<TakeResult> {
  const at = placeOf(place);
  const found = await stored(nc, at);
  if (found !== undefined && !found.free && !isOwn(found.row, who)) {
    const brokerNow = await (clock.brokerNow ?? (() => brokerClock(nc, at.stream)))();
    if (brokerNow - found.timeMs < LEASE_TTL_MS) return { kind: "busy", row: found.row };
  }
  const row = rowOf(who, 0, false, clock);
  try {
    const revision =
      found === undefined
        ? await writer.create(at.stream, at.subject, encode(row))
        : await writer.cas(at.stream, at.subject, encode(row), found.revision);
    return { kind: "held", hold: holdOf(nc, at, who, revision, clock, writer) };
  } catch (error) {
    if (!isCode(error, ErrorCode.Conflict)) throw error;
    return { kind: "busy", row: (await stored(nc, at))?.row };
  }
}

function isOwn(row: LeaseRow | undefined, { holder, succeeds }: LeaseHolder): boolean {
  return row !== undefined && (row.holder === holder || succeeds?.(row) === true);
}

const brokerClock = async (nc: NatsConnection, stream: string): Promise<number> => (await streamState(nc, stream)).atMs;

function rowOf(who: LeaseHolder, epoch: number, ready: boolean, { now = Date.now }: LeaseClock): LeaseRow {
  return { v: 1, holder: who.holder, principal: who.principal, epoch, ready, at: now() };
}

const encode = (row: LeaseRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row));

function holdOf(
  nc: NatsConnection,
  at: Place,
  who: LeaseHolder,
  epoch: number,
  clock: LeaseClock,
  writer: Writer,
): Hold {
  let revision = epoch;
  let isHeld = true;
  let isReady = false;

  /** The row is still this hold's: an earlier write of ours whose ack was lost. */
  const adopt = async (): Promise<boolean> => {
    const found = await stored(nc, at);
    const mine = found?.row?.holder === who.holder && (found.row.epoch === epoch || found.revision === epoch);
    if (mine) ({ revision } = found);
    isHeld = mine;
    return mine;
  };

  const write = async (row: LeaseRow): Promise<boolean> => {
    if (!isHeld) return false;
    for (let tries = 1; ; tries += 1) {
      try {
        revision = await writer.cas(at.stream, at.subject, encode(row), revision);
        return true;
      } catch (error) {
        const settles = isCode(error, ErrorCode.Conflict) || isUnknownOutcome(error);
        if (!settles || tries > 1) throw error;
        if (!(await adopt())) return false;
      }
    }
  };

  return {
    epoch,
    isHeld: () => isHeld,
    renew: (ready = isReady) => {
      isReady = ready;
      return write(rowOf(who, epoch, ready, clock));
    },
    release: async () => {
      if (!isHeld) return;
      const { stream, subject } = at;
      isHeld = false;
      try {
        await writer.cas(stream, subject, new Uint8Array(), revision, { headers: { [Header.KvOperation]: "DEL" } });
      } catch (error) {
        if (!isCode(error, ErrorCode.Conflict)) throw error;
      }
    },
  };
}
