/**
 * The identities that a state folder keeps for `--as`: a name may also mean one of these when its
 * holder is away, where the roster knows nobody of that name.
 */
import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { OPEN_OWNER, type Principal, parseDotForm } from "../shared/protocol/base/principals.ts";
import { readCredsFile } from "../shared/trust/creds.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import type { Target } from "./target.ts";

export type Kept = { readonly principal: Principal; readonly name: string; readonly file: string };

/** Everyone whose credential, or in an open space whose lifecycle, is kept for this space. */
export function keptIdentities({ state, space, auth }: Target): Kept[] {
  const folder = trustPaths(state).agents(space);
  return entries(folder).flatMap((entry) => {
    const file = join(folder, entry);
    const kept = auth === "open" ? fromUid(file) : fromCreds(file);
    return kept === undefined ? [] : [kept];
  });
}

/** Runs a look-up by name; where it finds nobody, a single kept identity of that name is meant. */
export async function resolvedOrKept(
  target: Target,
  who: string,
  resolve: () => Promise<Principal>,
): Promise<Principal> {
  try {
    return await resolve();
  } catch (thrown) {
    if (!(thrown instanceof CotalError) || thrown.code !== ErrorCode.NotFound) throw thrown;
    const [only, other] = keptIdentities(target).filter(({ name }) => name === who);
    if (only === undefined || other !== undefined) throw thrown;
    return only.principal;
  }
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // Nobody has been minted here yet.
    return [];
  }
}

function fromCreds(file: string): Kept | undefined {
  if (!file.endsWith(".creds")) return undefined;
  try {
    const { principal, name } = readCredsFile(file).view;
    return { principal, name: name ?? principal.actor, file };
  } catch {
    // Not a credential file: it means nobody.
    return undefined;
  }
}

function fromUid(file: string): Kept | undefined {
  if (!file.endsWith(".uid")) return undefined;
  const name = basename(file, ".uid");
  const principal = parseDotForm(`${OPEN_OWNER}.${name}`);
  return principal === undefined ? undefined : { principal, name, file };
}
