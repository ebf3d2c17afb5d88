/**
 * For programs: acts as whoever has signed in on this machine, the way the commands do.
 *
 * ```ts
 * const session = await connect({ servers: ["127.0.0.1:4222"], credentials: signedIn({ actor: "scout" }) });
 * ```
 */
import { defaultState } from "../launcher/state-folder.ts";
import type { UserCredentials } from "../shared/client/identity.ts";
import { userCredentials } from "./signin.ts";
import { DEFAULT_SPACE } from "./target.ts";

export type SignedInOptions = {
  /** A name of the person who has signed in. */
  readonly actor: string;
  /** Default: `main`. */
  readonly space?: string;
  /** The state folder; default: the one that the commands use. */
  readonly state?: string;
};

/** Credentials for `connect`; the sign-in is read at each use, so that a newer one is followed. */
export function signedIn({ actor, space = DEFAULT_SPACE, state }: SignedInOptions): UserCredentials {
  return userCredentials({ state: state ?? defaultState(process.env), space }, actor);
}
