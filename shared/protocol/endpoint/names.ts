/**
 * Names of endpoints and of their commands (§13.2), and the one name that several parts of this
 * project give to an endpoint of its own.
 *
 * Invariants
 * 1. An endpoint name is DNS labels; on the wire it is one token with `_` for `.`. No label holds `_`,
 *    so the mapping is exact.
 * 2. A name of one label belongs to this contract's own endpoints; everybody else's has two or more.
 *    Who may serve a name is said by a credential, never by the name (§13.9).
 */
import { COMMAND_TOKEN, ENDPOINT_LABEL } from "../base/grammar.ts";
import { badRequest } from "../base/errors.ts";

/** Endpoint names reserved for this project's own daemons (architecture §8). */
export const EndpointName = {
  Auth: "auth",
  Delivery: "delivery",
  Provisioner: "provisioner",
  Manager: "manager",
  Workflow: "workflow",
  Serving: "serving",
} as const;
export type EndpointName = (typeof EndpointName)[keyof typeof EndpointName];

/** The discovery bootstrap: pins no digest and no incarnation (§13.3). */
export const DESCRIBE = "describe";

/** Command names every endpoint keeps for the contract itself (decision H39). */
export const RESERVED_COMMANDS = [DESCRIBE, "cancel", "lease", "commit", "resume"] as const;
const RESERVED: ReadonlySet<string> = new Set(RESERVED_COMMANDS);

const MAX_ENDPOINT_LENGTH = 64;

/** True for a name of an endpoint. */
export function isEndpointName(name: string): boolean {
  return name.length <= MAX_ENDPOINT_LENGTH && name.split(".").every((label) => ENDPOINT_LABEL.test(label));
}

/** True for a name that only the space's operator may give out: one label. */
export function isCoreEndpoint(name: string): boolean {
  return isEndpointName(name) && !name.includes(".");
}

/** True for a command that an endpoint may declare as its own. */
export function isOwnCommand(name: string): boolean {
  return COMMAND_TOKEN.test(name) && !RESERVED.has(name);
}

/** An endpoint name as a subject token: `.` becomes `_`. */
export function endpointToken(name: string): string {
  if (typeof name !== "string" || !isEndpointName(name)) {
    throw badRequest(
      `${JSON.stringify(String(name).slice(0, 80))} is not an endpoint name`,
      "use DNS labels of a-z, 0-9 and inner dashes, at most 64 characters: com.acme.deploy",
    );
  }
  return name.replaceAll(".", "_");
}

/** Back from the token; the answer is a name only if `isEndpointName` says so. */
export function endpointName(token: string): string {
  return token.replaceAll("_", ".");
}
