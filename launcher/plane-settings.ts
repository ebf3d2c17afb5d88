/**
 * What a start is made of: port, mode and spaces, and what the daemons are told of them.
 *
 * Invariant: a state keeps the mode that it was made with. The stores of the two modes are different
 * ones, so a switch would look like a loss, and an authenticated state is never opened by a flag.
 */
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { keptAuthMode } from "../shared/trust/space-file.ts";
import { DEFAULT_PORT, knownSpaces, planePaths, readRemembered } from "./state-folder.ts";

export type Asked = { readonly port?: number | undefined; readonly auth?: AuthMode | undefined };
export type Settled = { readonly port: number; readonly auth: AuthMode; readonly spaces: string[] };

/** Decision H49. */
const DEFAULT_AUTH: AuthMode = "user";

/** Port, mode and spaces: what was asked for, else what this state was made with. */
export function settle(state: string, space: string, asked: Asked): Settled {
  const before = readRemembered(state);
  const made = before?.auth ?? modeOf(state);
  const auth = asked.auth ?? made ?? DEFAULT_AUTH;
  if (made !== undefined && made !== auth) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${state} was made with auth mode ${made}, not ${auth}`, {
      outcome: Outcome.NotExecuted,
      next: `name another folder with --state, or leave --auth ${auth} out`,
    });
  }
  const spaces = [...new Set([...(before?.spaces ?? []), space])];
  return { port: asked.port ?? before?.port ?? DEFAULT_PORT, auth, spaces };
}

/** What a state whose record of it is lost was made with: its spaces say. Only where people sign in may both be. */
function modeOf(state: string): AuthMode | undefined {
  const modes = knownSpaces(state).map((space) => keptAuthMode(state, space));
  return modes.includes("user") ? "user" : modes.find((mode) => mode !== undefined);
}

/** What the provisioner of an authenticated broker is told: it takes up every space that has keys. */
export function accountsEnv(server: string, state: string): Record<string, string> {
  const keys = trustPaths(state).provisioner("{space}");
  return { COTAL_SERVERS: server, COTAL_BROKER: "accounts", COTAL_SPACES: "*", COTAL_PROVISIONER_KEYS: keys };
}

/**
 * What the auth service is told. Its development issuer is on: this machine's one person is signed in by
 * being able to read the run folder, and `cotal up` says so.
 */
export function authEnv(server: string, state: string): Record<string, string> {
  return {
    COTAL_SERVERS: server,
    COTAL_SPACES: "*",
    COTAL_AUTH_KEYS: trustPaths(state).auth("{space}"),
    COTAL_AUTH_FACE_FILE: planePaths(state).face("{space}"),
    COTAL_AUTH_DEV_ISSUER: "true",
    COTAL_AUTH_POLICY: "auto",
  };
}

/** What the delivery service is told. */
export function deliveryEnv(server: string, state: string): Record<string, string> {
  return {
    COTAL_SERVERS: server,
    COTAL_SPACES: "*",
    COTAL_DELIVERY_KEYS: trustPaths(state).delivery("{space}"),
  };
}

/** An open space has no keys by which the daemon could find it: it is named. */
export function openEnv(server: string, spaces: readonly string[]): Record<string, string> {
  return { COTAL_SERVERS: server, COTAL_BROKER: "open", COTAL_SPACES: spaces.join(",") };
}
