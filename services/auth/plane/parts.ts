/** What the plane's parts are given: the ledger, the broker behind it, and the rules of the space. */
import type { Connected } from "../../../shared/broker/still-connected.ts";
import type { LedgerStore } from "../../../shared/ledger/store.ts";
import type { Turns } from "../../../shared/ledger/turns.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import type { Principal, RandomBytes } from "../../../shared/protocol/base/principals.ts";
import type { Executor } from "../../../shared/ledger/takeover-stage.ts";
import type { ActorRow, ConnectionTuple } from "../../../shared/protocol/ledger/actor-rows.ts";
import type { Liveness } from "./liveness.ts";
import type { ActorLists } from "./authority-type.ts";
import type { PlaneElsewhere } from "./elsewhere.ts";

/** How an actor that has no row is met. */
export type EnrolPolicy = "auto" | "granted";

export type LedgerPage = {
  readonly rows: readonly {
    readonly key: string;
    readonly seq: number;
    /** Epoch milliseconds by the broker's clock. */
    readonly timeMs: number;
    readonly value: unknown;
  }[];
  readonly cursor?: number;
};

export type PlaneParts = {
  readonly space: string;
  readonly ledger: LedgerStore;
  /** Identity key of the account that clients connect to. */
  readonly frontAccount: string;
  /** Does this process hold the plane's claim now (`claim.ts`)? */
  readonly holdsPlane: () => boolean;
  /** Does the claim's row still say so? Read at the leader: whoever stood still may have lost it without a word. */
  readonly claimStands: () => Promise<boolean>;
  /** What carries this plane's operations out: the connections that hold its claim. Throws where it holds none. */
  readonly executor: () => Executor;
  /** Is one connection of this account still there? */
  readonly livenessOf: (tuple: ConnectionTuple) => Promise<Liveness>;
  /** Whoever does, where it can be asked. */
  readonly plane: () => PlaneElsewhere | undefined;
  /** Makes what a lifecycle receives through; safe to run again. */
  readonly makeDurables: (p: Principal, uid: string, role: string | undefined) => Promise<void>;
  /** Makes what the holders of a role share; safe to run again. */
  readonly makeQueue: (role: string) => Promise<void>;
  /**
   * Ends whoever is connected under this name, of whatever lifecycle, where that can be done, and says what is
   * proved of it. Asked once nothing new of it can be let in: `none` then means that nobody of it is, or will be.
   */
  readonly connectionsOf: (p: Principal) => Promise<Connected>;
  /** Are the copies taken back that this revision of a read list no longer covers? Waits a while for it. */
  readonly isSwept: (p: Principal, uid: string, revision: number) => Promise<boolean>;
  /** Ends every connection that was let in before the question; true if that is proved. */
  readonly endConnections: (p: Principal) => Promise<boolean>;
  /** Ends and takeovers of one lifecycle, by its UID: one after another in this process. */
  readonly ends: Turns;
  /** Removes exactly what an ended lifecycle left; safe to run again. */
  readonly removeRemains: (p: Principal, uid: string) => Promise<void>;
  /** Last sequence of each stream of the space, for the frontier of an end. */
  readonly frontiers: () => Promise<Readonly<Record<string, number>>>;
  /** Bytes that the rows of one answer may have. */
  readonly answerBytes: () => number;
  /** Rows of one bucket at the leader, in the order of their last change, from this sequence on. */
  readonly ledgerPage: (bucket: "auth" | "records", filter: string, cursor: number | undefined) => Promise<LedgerPage>;
  /** Throws for lists that no credential could carry (§9 size gate, decision H32). */
  readonly tryMint: (row: ActorRow) => Promise<void>;
  /** Owners that nobody signs in as: the space itself. */
  readonly isReservedOwner: (owner: string) => boolean;
  readonly policy: EnrolPolicy;
  /** What an actor gets under the policy `auto`. */
  readonly defaults: ActorLists;
  /** Actors that one owner may make by signing in. */
  readonly actorsPerOwner: number;
  /** The manager that people are sent to who name none, if the host has chosen one (§10). */
  readonly localManager?: string | undefined;
  /** This process, as lifecycle heads name it. */
  readonly managerInstance: string;
  /** Epoch milliseconds. */
  readonly now: () => number;
  readonly random: RandomBytes;
};

const ROUNDS = 10;
const MOST_WAIT_MS = 40;

/** Runs again what lost a compare-and-set to somebody else; everything in it must converge. */
export async function settled<T>({ random }: Pick<PlaneParts, "random">, run: () => Promise<T>): Promise<T> {
  for (let round = 1; ; round += 1) {
    try {
      return await run();
    } catch (error) {
      const lost = error instanceof CotalError && error.code === ErrorCode.Conflict;
      if (!lost || round === ROUNDS) throw error;
      const share = (random(1)[0] ?? 0) / 256;
      await new Promise((resolve) => setTimeout(resolve, Math.min(MOST_WAIT_MS, 2 ** round) * share));
    }
  }
}

export function refusal(code: ErrorCode, message: string, next: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
}

/** Throws unless this process may do what only the plane does (decision H45), by the claim's row as it is now. */
export async function demandPlane({
  holdsPlane,
  claimStands,
}: Pick<PlaneParts, "holdsPlane" | "claimStands">): Promise<void> {
  if (!holdsPlane() || !(await claimStands())) throw noPlane();
}

/** What only the plane does was asked of a process that does not hold it. */
export function noPlane(): CotalError {
  return new CotalError(ErrorCode.Unavailable, "this process does not hold the authority plane of the space", {
    outcome: Outcome.NotExecuted,
    next: "ask the process that holds it, which says so in its log and its metrics; who was let in before gets in here too",
    details: [{ kind: NO_PLANE }],
  });
}

const NO_PLANE = "ai.cotal.auth.no-plane";

/** Did it fail because this process does not hold the plane? */
export function isNoPlane(thrown: unknown): boolean {
  return thrown instanceof CotalError && thrown.details.some(({ kind }) => kind === NO_PLANE);
}
