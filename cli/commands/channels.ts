/**
 * `cotal channels`: the registry of the space, cut to what the caller may read. A member sees what it is joined to
 * and what only a mention reaches it in (§4): what is not joined is not out of reach.
 */
import type { Command } from "commander";
import { isCode } from "../../shared/broker/errors.ts";
import { type Reach, reachOf } from "../../shared/client/reach.ts";
import { DeliveryCommand } from "../../shared/grants/commands.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { type ChannelConfig, effectiveConfig } from "../../shared/protocol/chat/channel-config.ts";
import { DurableListAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { askingCredentials } from "../identity.ts";
import { type Rail, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { standingMemberships } from "../standing.ts";
import type { CommonOptions } from "../target.ts";
import { oneLine, table } from "../text.ts";

export function registerChannels(program: Command): void {
  handle(
    program.command("channels").description("list the channels that have settings, and which of them reach you how"),
    channels,
  );
}

async function channels({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  const [{ defaults, channels: registered }, joined] = await withRail(at, credentials, (rail) =>
    Promise.all([rail.reads.channels(), joinedBy(rail, options)]),
  );
  const sorted = registered.toSorted((a, b) => (a.channel < b.channel ? -1 : 1));
  const known = new Set(sorted.map(({ channel }) => channel));
  const others = (joined ?? []).filter((pattern) => !known.has(pattern));
  const reach = (channel: string): Reach | undefined =>
    joined === undefined ? undefined : reachOf(channel, joined, "auth");
  if (out.json) {
    out.item({ kind: "channel-defaults", ...defaults });
    for (const { channel, config } of sorted) {
      const how = reach(channel);
      const effective = effectiveConfig(config, defaults);
      out.item({ kind: "channel", channel, config, effective, ...(how === undefined ? {} : { reach: how }) });
    }
    for (const channel of others) out.item({ kind: "joined", channel, reach: "joined" });
    return;
  }
  const line = (name: string, config: ChannelConfig | undefined, how = ""): string[] => {
    const { replay, deliveryClass } = effectiveConfig(config, defaults);
    const window = config?.replayWindow ?? defaults.replayWindow;
    return [name, deliveryClass, replay ? (window ?? "all") : "no replay", how, oneLine(config?.description ?? "")];
  };
  const rows = [
    ...sorted.map(({ channel, config }) => line(`#${channel}`, config, reach(channel))),
    ...others.map((channel) => line(`#${oneLine(channel)}`, undefined, "joined")),
  ];
  const head = ["channel", "class", "replay", joined === undefined ? "" : "you", ""];
  out.item({ kind: "channels" }, ...table([head, line("(default)", undefined), ...rows]));
  if (rows.length === 0) out.note("no channel has settings of its own; one is there as soon as somebody posts to it");
  if (joined !== undefined)
    out.note("joined: copies are kept for you. What a running session hears live, it says itself");
}

/** Patterns of which copies are kept for whoever acts; `undefined` where nobody acts who could be a member. */
async function joinedBy(rail: Rail, { as, creds }: CommonOptions): Promise<string[] | undefined> {
  if (as === undefined && creds === undefined) return undefined;
  const joined: string[] = [];
  try {
    const asked = (args: object) => rail.askDelivery(DeliveryCommand.DurableList, args, DurableListAnswer);
    for await (const { channel } of standingMemberships(asked)) joined.push(channel);
  } catch (thrown) {
    // An observer has no inbox, and an open space keeps no copies.
    if (!isCode(thrown, ErrorCode.PermissionDenied) && !isCode(thrown, ErrorCode.FailedPrecondition)) throw thrown;
    return undefined;
  }
  return joined;
}
