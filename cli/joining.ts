/** Joins channels and says how each is joined (§7), the shortfall included. */
import type { Session } from "../shared/client/session-types.ts";
import type { Output } from "./output.ts";

export async function joinAll(session: Session, out: Output, channels: readonly string[]): Promise<void> {
  for (const channel of channels) {
    const joined = await session.join(channel);
    const { state, shortfall, frontier } = joined;
    const item = {
      kind: "joined",
      channel: joined.channel,
      state,
      class: joined.class,
      ...(frontier === undefined ? {} : { frontier }),
      ...(shortfall === undefined ? {} : { shortfall }),
    };
    // In words the session says it itself, once for all channels.
    out.notice(item, `#${joined.channel} ${state}`);
  }
}
