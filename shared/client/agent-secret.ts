/**
 * The secret of a managed agent (§10), as it is presented: from memory, or from a file that is read at each
 * exchange, so that it may be replaced.
 *
 * Invariant: no error holds any of it, nor of a file that turned out to be another.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

/** Where the secret is. */
export type AgentSecret = { readonly secretFile: string } | { readonly secret: string };

const MAX_SECRET = 512;
/** Room for line ends; what is longer shows that it is. */
const MAX_FILE = MAX_SECRET + 64;

export function agentSecret(from: AgentSecret): string {
  const [secret, where] =
    "secret" in from ? [from.secret, "the agent's secret"] : [contentOf(from.secretFile), from.secretFile];
  if (secret === "") throw unusable(`${where} is empty`);
  if (secret.length > MAX_SECRET) throw unusable(`${where} is too long to be an agent's secret`);
  return secret;
}

function contentOf(path: string): string {
  let fd: number | undefined;
  try {
    // Without O_NONBLOCK the open of a pipe waits for its writer.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    if (!fstatSync(fd).isFile()) throw unusable(`${path} is no regular file`);
    const bytes = Buffer.alloc(MAX_FILE);
    return bytes.toString("utf8", 0, readSync(fd, bytes, 0, MAX_FILE, 0)).trim();
  } catch (cause) {
    throw cause instanceof CotalError ? cause : unusable(`${path} can't be read`, cause);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

function unusable(why: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, why, {
    outcome: Outcome.NotExecuted,
    next: "name a file that holds the secret of the agent and nothing else",
    ...(cause === undefined ? {} : { cause }),
  });
}
