/**
 * What commands keep in the state folder for a space: credentials for `--as`, keys of unfinished mints, the sign-in and
 * its lock files. Written by one command at a time, which first clears away what a killed one left on its way there.
 *
 * Invariant: nothing is asked of anybody under this lock; it is held for the time of a few file operations.
 */
import { join } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { aloneSync } from "../shared/trust/file-lock.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { sweepStaged } from "../shared/trust/staged.ts";

/** A space of a state folder. */
export type KeepingPlace = { readonly state: string; readonly space: string };

/** For a disk that is slow; whoever is stopped there holds up the others. */
const WAIT_MS = 10_000;
const SIGN_IN = /^login\.(?:json|lock\.[0-9a-f]{16})$/;

export function agentsFolder({ state, space }: KeepingPlace): string {
  return trustPaths(state).agents(space);
}

/** Keys of unfinished mints. */
export function pendingFolder(place: KeepingPlace): string {
  return join(agentsFolder(place), "pending");
}

/** Runs what writes, alone among the commands of this place. */
export function keeping<T>(place: KeepingPlace, write: () => T, waitMs = WAIT_MS): T {
  const paths = trustPaths(place.state);
  const folder = paths.space(place.space);
  return aloneSync({ path: paths.commandLock(place.space), waitMs, held: () => busy(folder) }, () => {
    sweepStaged(folder, (file) => SIGN_IN.test(file));
    for (const own of [agentsFolder(place), pendingFolder(place)]) sweepStaged(own, () => true);
    return write();
  });
}

function busy(folder: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `another command writes in ${folder} and does not end`, {
    outcome: Outcome.NotExecuted,
    next: "try again; if it stays, end the cotal command that hangs",
  });
}
