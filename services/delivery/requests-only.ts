/** What comes on a rail of requests and is none: a copy of something stored, on whatever subject it comes (§5). */
import type { Msg } from "@nats-io/transport-node";
import { hasProvenance } from "../../shared/protocol/base/headers.ts";

/** Why it is dropped unread; `undefined` for a request. */
export function whyNoRequest(message: Msg): string | undefined {
  try {
    return hasProvenance(message.headers?.keys() ?? []) ? "it is a stored copy" : undefined;
  } catch {
    return "its headers do not parse";
  }
}
