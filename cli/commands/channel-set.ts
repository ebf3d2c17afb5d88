/** `cotal channel set CH`: changes the settings of a channel, or the space's defaults. */
import { type Command, Option } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { DeliveryClass, replayWindowMs } from "../../shared/protocol/chat/channel-config.ts";
import { ChannelSetAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { View } from "../../shared/protocol/endpoint/views.ts";
import { typedChannel } from "../channel-names.ts";
import { UsageError, argument } from "../exit.ts";
import { withRail } from "../operator.ts";
import { askingCredentials } from "../identity.ts";
import { type Invocation, handle } from "../program.ts";
import { registerChannelPurge } from "./channel-purge.ts";
import { oneLine, table } from "../text.ts";

type SetOptions = {
  readonly defaults?: boolean;
  readonly replay?: "on" | "off" | "none";
  readonly window?: string;
  readonly class?: DeliveryClass | "none";
  readonly description?: string;
  readonly instructions?: string;
};

const NONE = "none";

export function registerChannelSet(program: Command): void {
  const channel = program.command("channel").description("settings of a channel");
  const set = channel
    .command("set [channel]")
    .description("change settings; none takes one away, so that the default holds")
    .option("--defaults", "the space's defaults instead of one channel's settings")
    .addOption(new Option("--replay <mode>", "replay on join").choices(["on", "off", NONE]))
    .option("--window <time>", "how far back a join replays, such as 24h, or none")
    .addOption(new Option("--class <class>", "delivery class").choices([...DeliveryClass.options, NONE]))
    .option("--description <text>", "one line about it, or none")
    .option("--instructions <text>", "what members should know, or none");
  handle<SetOptions>(set, channelSet);
  registerChannelPurge(channel);
}

async function channelSet({ options, out, target }: Invocation<SetOptions>, text?: string): Promise<void> {
  if (text === undefined && options.defaults !== true) {
    throw new UsageError("it is not said which channel", { next: "name one, such as '#general', or use --defaults" });
  }
  if (text !== undefined && options.defaults === true) {
    throw new UsageError("a channel and --defaults both say what to set", { next: "use one of them" });
  }
  const channel = text === undefined ? undefined : typedChannel(out, text);
  const change = changeOf(options);
  if (Object.keys(change).length === 0) {
    throw new UsageError("nothing to set", {
      next: "add --replay, --window, --class, --description or --instructions",
    });
  }
  const at = target();
  const credentials = await askingCredentials(at, options, out, { view: View.ChannelWriter });
  const { config } = await withRail(at, credentials, (rail) =>
    rail.ask(
      ProvisionerCommand.ChannelSet,
      { ...(channel === undefined ? {} : { channel }), change },
      ChannelSetAnswer,
    ),
  );
  const name = channel === undefined ? "(default)" : `#${channel}`;
  const rows = Object.entries(config).map(([field, value]) => [field, oneLine(String(value))]);
  out.item(
    {
      kind: channel === undefined ? "channel-defaults" : "channel",
      ...(channel === undefined ? {} : { channel }),
      config,
    },
    name,
    ...table(rows).map((line) => `  ${line}`),
  );
}

function changeOf(options: SetOptions): Record<string, unknown> {
  const { replay, window, description, instructions } = options;
  if (window !== undefined && window !== NONE) argument(() => replayWindowMs(window));
  const textual = { replayWindow: window, deliveryClass: options.class, description, instructions };
  return {
    ...(replay === undefined ? {} : { replay: replay === NONE ? null : replay === "on" }),
    ...Object.fromEntries(
      Object.entries(textual)
        .filter(([, value]) => value !== undefined)
        .map(([field, value]) => [field, value === NONE ? null : value]),
    ),
  };
}
