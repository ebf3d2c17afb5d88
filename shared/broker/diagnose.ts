/**
 * Why did the broker drop us during CONNECT? (field case 26)
 *
 * A CONNECT longer than the server's `max_control_line` ends in a closed socket, sometimes without
 * the error that says so. The text of that error is no contract, and other drops look alike (a full
 * account), so we measure: a line of the same length that holds no credential, beside a short one.
 * If the short one is answered and the long one dropped, twice, the length is the cause.
 */
import { AuthorizationError, TimeoutError, type TlsOptions, connect } from "@nats-io/transport-node";
import { connectBytes } from "./authenticator.ts";

export type ProbeTarget = {
  readonly servers: readonly string[];
  readonly tls?: TlsOptions;
  readonly timeoutMs: number;
};

const NAME = "cotal connect probe";
const ROUNDS = 2;

/** True if the servers drop a CONNECT of this many bytes for its length. */
export async function isLineTooLong(target: ProbeTarget, bytes: number): Promise<boolean> {
  const padded = NAME.padEnd(NAME.length + Math.max(0, bytes - connectBytes(NAME)), ".");
  for (let round = 0; round < ROUNDS; round += 1) {
    if ((await probe(target, NAME)) !== "answered") return false;
    if ((await probe(target, padded)) !== "dropped") return false;
  }
  return true;
}

/** A refused login is an answer: the line was read. */
async function probe(target: ProbeTarget, name: string): Promise<"answered" | "dropped" | "silent"> {
  try {
    const nc = await connect({
      servers: [...target.servers],
      name,
      reconnect: false,
      timeout: target.timeoutMs,
      ...(target.tls === undefined ? {} : { tls: target.tls }),
    });
    await nc.close();
    return "answered";
  } catch (thrown) {
    // A clean close without an error rejects with `undefined`.
    if (thrown instanceof AuthorizationError) return "answered";
    return thrown instanceof TimeoutError ? "silent" : "dropped";
  }
}
