/**
 * A reply out: one that can't go out is replaced by a refusal that says the command ran.
 *
 * Nothing here throws: a connection that is closed costs the caller the answer, which means "unknown" to him.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type EndpointReply, errorReply } from "../protocol/endpoint/envelope.ts";

/** Publishes a reply; hands back the code of what took its place, if something did. */
export function send(nc: NatsConnection, target: string, reply: EndpointReply): ErrorCode | undefined {
  const bytes = encode(reply, nc.info?.max_payload ?? Number.POSITIVE_INFINITY);
  const refusal = bytes instanceof CotalError ? bytes : undefined;
  try {
    nc.publish(target, bytes instanceof CotalError ? JSON.stringify(errorReply(reply.id, bytes)) : bytes);
    return refusal?.code;
  } catch {
    return ErrorCode.Unavailable;
  }
}

/** The reply's bytes, or why there are none that could go out. */
function encode(reply: EndpointReply, limit: number): Uint8Array | CotalError {
  try {
    const bytes = Buffer.from(JSON.stringify(reply));
    if (bytes.length <= limit) return bytes;
  } catch (cause) {
    // What nests too deep for the stack, for example.
    return new CotalError(ErrorCode.Internal, "the answer can't be written as JSON", {
      outcome: Outcome.Executed,
      cause,
    });
  }
  return new CotalError(ErrorCode.ResourceExhausted, "the answer is larger than the broker's max_payload", {
    outcome: Outcome.Executed,
    next: "ask for a smaller page",
  });
}
