/**
 * A credential that is fetched: it takes time to get, runs out, and may be refused for good. And the gate
 * that keeps a connection from dialling while there is none (field case 20).
 *
 * Invariants
 * 1. Nothing that is known to be dead is presented: while the supply is not ready no dial goes out.
 * 2. Whether a refused credential ends a connection is for who made it to say: the broker's refusal
 *    carries no reason (decision H17).
 */
import type { CotalError } from "../protocol/base/errors.ts";
import type { Pace } from "./pace.ts";

export type SupplyTrouble = {
  readonly error: CotalError;
  /** There will never be another credential. */
  readonly isFinal: boolean;
  readonly failures: number;
  /** Milliseconds until the next attempt; 0 for a final one. */
  readonly waitMs: number;
};

export type Supply = {
  /** Settles once there is something to present; rejects with what the next attempt failed with. */
  readonly ready: (signal?: AbortSignal) => Promise<void>;
  readonly isReady: () => boolean;
  /** Milliseconds until the next attempt. */
  readonly waitMs: () => number;
  /** Why there will never be another credential. */
  readonly ended: () => CotalError | undefined;
  /** The broker took what was presented. */
  readonly accepted: () => void;
  /** The broker refused it: nothing is ready until the reason has been asked for. */
  readonly refused: () => void;
  readonly watch: (listener: (trouble: SupplyTrouble) => void) => void;
  readonly close: () => void;
};

export type Gate = {
  /** For nats.js: how long to wait before a dial, asked before each and while it waits. */
  readonly waitMs: () => number;
  /** A dial goes out now. */
  readonly dialing: () => null;
  /** Keeps the gate shut until the last dial has been judged. */
  readonly guard: (isSettled: () => boolean) => void;
};

/** How often a shut gate is tried. */
const POLL_MS = 100;

/**
 * nats.js counts its wait from a server's last dial. A wait that is always a little longer than what
 * has passed since then is a shut gate that is looked at again after that little.
 */
export function createGate(supply: Supply | undefined, pace: Pace, now: () => number = Date.now): Gate {
  let dialed = 0;
  let isSettled = (): boolean => true;
  return {
    waitMs: () => {
      if (supply === undefined || (isSettled() && supply.isReady())) return pace.waitMs();
      return Math.max(pace.waitMs(), dialed === 0 ? POLL_MS : now() - dialed + POLL_MS);
    },
    dialing: () => {
      dialed = now();
      return null;
    },
    guard: (settled) => {
      isSettled = settled;
    },
  };
}
