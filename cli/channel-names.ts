/**
 * Channels as a person types them: `#` in front or not, and any other character than letters, digits,
 * `_`, `-` and `.` written as `_` (§3).
 *
 * Invariant: a name that is not written as it was typed is said so, because two of them may meet.
 */
import { channelPattern, concreteChannel } from "../shared/protocol/base/channels.ts";
import { argument } from "./exit.ts";
import type { Output } from "./output.ts";
import { oneLine } from "./text.ts";

/** One channel. */
export function typedChannel(out: Output, text: string): string {
  return told(
    out,
    text,
    argument(() => concreteChannel(text)),
  );
}

/** A channel or a pattern. */
export function typedPattern(out: Output, text: string): string {
  return told(
    out,
    text,
    argument(() => channelPattern(text)),
  );
}

function told(out: Output, text: string, channel: string): string {
  if (text.replace(/^#/, "") === channel) return channel;
  const message = `${oneLine(text)} is written #${channel}: a channel has letters, digits, _, - and . only`;
  out.notice({ kind: "notice", about: "renamed", message }, message);
  return channel;
}
