/** `cotal channels`: the registry of the space, cut to what the caller may read. */
import type { Command } from "commander";
import { effectiveConfig } from "../../shared/protocol/chat/channel-config.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { oneLine, table } from "../text.ts";

export function registerChannels(program: Command): void {
  handle(program.command("channels").description("list the channels that have settings"), channels);
}

async function channels({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  const answer = await withRail(at, credentials, ({ reads }) => reads.channels());
  const sorted = answer.channels.toSorted((a, b) => (a.channel < b.channel ? -1 : 1));
  if (out.json) {
    out.item({ kind: "channel-defaults", ...answer.defaults });
    for (const { channel, config } of sorted) {
      out.item({ kind: "channel", channel, config, effective: effectiveConfig(config, answer.defaults) });
    }
    return;
  }
  const line = (name: string, config: (typeof sorted)[number]["config"] | undefined): string[] => {
    const { replay, deliveryClass } = effectiveConfig(config, answer.defaults);
    const window = config?.replayWindow ?? answer.defaults.replayWindow;
    return [name, deliveryClass, replay ? (window ?? "all") : "no replay", oneLine(config?.description ?? "")];
  };
  const rows = sorted.map(({ channel, config }) => line(`#${channel}`, config));
  out.item({ kind: "channels" }, ...table([["channel", "class", "replay", ""], line("(default)", undefined), ...rows]));
  if (rows.length === 0) out.note("no channel has settings of its own; one is there as soon as somebody posts to it");
}
