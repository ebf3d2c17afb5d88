/**
 * What a killed run of the trust program left of the files that it was writing, removed by the next one.
 *
 * Invariants
 * 1. Under the lock of the state folder alone (`lock.ts`), and before anything is written: no other run is at work then.
 * 2. Only files that the trust program writes and nobody else. The sign-in and the agents' credentials are the CLI's, and
 *    the development issuer's key and person the auth service's.
 */
import { readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { AuthFile, former, next } from "../../shared/trust/auth-folder.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { sweepStaged } from "../../shared/trust/staged.ts";

const ALL = (): boolean => true;

const OURS_OF_AUTH: ReadonlySet<string> = new Set(
  Object.values(AuthFile)
    .filter((file) => file !== AuthFile.DevPerson)
    .flatMap((file) => [file, next(file), former(file)]),
);

export function sweepTrust(state: string): void {
  const paths = trustPaths(state);
  sweepStaged(paths.root, ALL);
  for (const space of spacesOf(paths.spaces)) {
    const whole = [paths.spaceTrust(space), paths.provisioner(space), paths.delivery(space)];
    for (const folder of [...whole, dirname(paths.operatorCreds(space))]) sweepStaged(folder, ALL);
    sweepStaged(paths.auth(space), (file) => OURS_OF_AUTH.has(file));
    sweepStaged(paths.space(space), (file) => file === basename(paths.sentinel(space)));
  }
}

function spacesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // No space has been made yet.
    return [];
  }
}
