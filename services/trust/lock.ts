/**
 * One change of a state's trust at a time.
 *
 * A revocation is read, added to, written, signed into an account and pushed. Two programs that do this
 * at once lose one of the two: the list that is pushed last may lack what the other has just added. So
 * they run one after the other, in whichever containers they are (decision 49).
 */
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { alone } from "../../shared/trust/file-lock.ts";
import { trustPaths } from "../../shared/trust/folder.ts";

/** Longer than any run takes that makes progress (a revocation waits ten seconds for connections to end). */
const WAIT_MS = 20_000;
/** The initialiser runs the trust program several times for each space. */
const LAYING_OUT_WAIT_MS = 120_000;

/** Runs alone among all that change the trust of this folder. */
export function changingTrust<T>(folder: string, run: () => Promise<T> | T): Promise<T> {
  return alone({ path: trustPaths(folder).lock, waitMs: WAIT_MS, held: () => held(folder) }, run);
}

/** Runs alone among the initialisers of this folder, who wait for the trust program themselves. */
export function layingOut(folder: string, run: () => Promise<void> | void): Promise<void> {
  return alone({ path: trustPaths(folder).initialiserLock, waitMs: LAYING_OUT_WAIT_MS, held: () => held(folder) }, run);
}

function held(folder: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `another run changes the trust in ${folder}`, {
    outcome: Outcome.NotExecuted,
    next: "wait until it has ended, then run the same command again",
  });
}
