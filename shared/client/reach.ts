/**
 * Whether a channel is joined, or only reaches its reader by a mention (§4): what is not joined is not what can't
 * reach one. Who shows channels marks each, so that nobody takes the second for the first.
 */
import { matches } from "../protocol/base/channels.ts";
import type { Mode } from "./identity.ts";

/**
 * `joined`: a pattern that is joined covers it. Else it lies within the read list alone: `mention-reachable` where a
 * mention brings a copy to whoever has an inbox, `readable` in an open space, which keeps no copies.
 */
export type Reach = "joined" | "mention-reachable" | "readable";

/** Of a channel within the read list, by what is joined. */
export function reachOf(channel: string, joined: readonly string[], mode: Mode): Reach {
  if (joined.some((pattern) => matches(pattern, channel))) return "joined";
  return mode === "open" ? "readable" : "mention-reachable";
}
