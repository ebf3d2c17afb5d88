/**
 * The provisioner's commands: the table of what it serves. Who may call which stands in the grants
 * (`shared/grants/commands.ts`); the broker enforces it, and the handlers only narrow.
 */
import { ProvisionerCommand as Name } from "../../shared/grants/commands.ts";
import {
  ChannelPurgeArgs,
  ChannelSetArgs,
  ChannelsArgs,
  DeprovisionArgs,
  DeprovisionCompleteArgs,
  DmHistoryArgs,
  FrontierArgs,
  HistoryArgs,
  LimitsSetArgs,
  MintArgs,
  NoArgs,
  RosterArgs,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type Command, command } from "../../shared/serve/serve.ts";
import { channelSet, channels, frontier } from "./channels.ts";
import { check } from "./check.ts";
import type { SpaceContext } from "./context.ts";
import { deprovision, deprovisionComplete } from "./deprovision.ts";
import { dmHistory, history } from "./history.ts";
import { limitsSet, limitsShow } from "./limits.ts";
import { mint } from "./mint.ts";
import { channelPurge, historyPurge } from "./purge.ts";
import { roster } from "./roster.ts";

export function provisionerCommands(context: SpaceContext, instanceId: string): Readonly<Record<Name, Command>> {
  return {
    [Name.Space]: command(NoArgs, () => Promise.resolve({ settings: context.settings })),
    [Name.Channels]: command(ChannelsArgs, (args, { caller }) => channels(context, caller, args)),
    [Name.Roster]: command(RosterArgs, (args) => roster(context, args)),
    [Name.Frontier]: command(FrontierArgs, (args, { caller }) => frontier(context, caller, args)),
    [Name.History]: command(HistoryArgs, (args, { caller }) => history(context, caller, args)),
    [Name.DmHistory]: command(DmHistoryArgs, (args) => dmHistory(context, args)),
    [Name.Mint]: command(MintArgs, (args) => mint(context, instanceId, args)),
    [Name.Deprovision]: command(DeprovisionArgs, (args) => deprovision(context, args)),
    [Name.DeprovisionComplete]: command(DeprovisionCompleteArgs, (args) => deprovisionComplete(context, args)),
    [Name.ChannelSet]: command(ChannelSetArgs, (args) => channelSet(context, args)),
    [Name.ChannelPurge]: command(ChannelPurgeArgs, (args) => channelPurge(context, args)),
    [Name.HistoryPurge]: command(NoArgs, () => historyPurge(context)),
    [Name.LimitsShow]: command(NoArgs, () => limitsShow(context)),
    [Name.LimitsSet]: command(LimitsSetArgs, (args) => limitsSet(context, args)),
    [Name.Check]: command(
      NoArgs,
      shared(() => check(context)),
    ),
  };
}

/** One run for all who ask while it lasts: it reads the whole space, and anybody may ask who may see it. */
function shared<T>(run: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () =>
    (running ??= run().finally(() => {
      running = undefined;
    }));
}
