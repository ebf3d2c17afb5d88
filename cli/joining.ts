/** Joins channels and says how each is joined (§7), the shortfall included. */
import type { Session } from "../shared/client/session-types.ts";
import type { Output } from "./output.ts";

export async function joinAll(session: Session, out: Output, channels: readonly string[]): Promise<void> {
  const told = new Set<string>();
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
    const why = shortfall === undefined || told.has(shortfall) ? "" : `: ${shortfall}`;
    if (shortfall !== undefined) told.add(shortfall);
    out.notice(item, `#${joined.channel} ${state}${why}`);
  }
}
