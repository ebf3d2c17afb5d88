/** `cotal channel purge CH`: removes the history of one channel, for whoever has signed in and may (§10). */
import type { Command } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { PurgeAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { View } from "../../shared/protocol/endpoint/views.ts";
import { typedChannel } from "../channel-names.ts";
import { UsageError } from "../exit.ts";
import { namedCredentials } from "../identity.ts";
import { operatorCredentials, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { OWN_ACTOR, isUserSpace, userCredentials } from "../signin.ts";

type PurgeOptions = { readonly yes?: boolean };

/** Beside `channel set`. */
export function registerChannelPurge(channel: Command): void {
  const purge = channel
    .command("purge <channel>")
    .description("remove its history for everybody; the scope purge is asked for, where people sign in")
    .option("--yes", "do it: what is removed is gone");
  handle<PurgeOptions>(purge, channelPurge);
}

async function channelPurge({ options, out, target }: Invocation<PurgeOptions>, text = ""): Promise<void> {
  const channel = typedChannel(out, text);
  if (options.yes !== true) {
    throw new UsageError(`this removes the history of #${channel} for everybody, for good`, {
      next: "add --yes to do it",
    });
  }
  const at = target();
  const asks = { view: View.ChannelPurger };
  const credentials =
    (await namedCredentials(at, options, out, asks)) ??
    // An operator's credential does not remove history (supplement F).
    (isUserSpace(at) ? userCredentials(at, OWN_ACTOR, asks) : operatorCredentials(at));
  const { removed } = await withRail(at, credentials, (rail) =>
    rail.ask(ProvisionerCommand.ChannelPurge, { channel }, PurgeAnswer),
  );
  out.item({ kind: "purged", channel, removed }, `removed ${removed} posts of #${channel}`);
  if (removed > 0) out.note("what members have been sent already stays in their inboxes");
}
