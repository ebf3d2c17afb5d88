/** `cotal channel purge CH`: removes the history of one channel, for the operator or whoever has signed in and may (§10). */
import type { Command } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { PurgeAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { View } from "../../shared/protocol/endpoint/views.ts";
import { typedChannel } from "../channel-names.ts";
import { UsageError } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";

type PurgeOptions = { readonly yes?: boolean };

/** Beside `channel set`. */
export function registerChannelPurge(channel: Command): void {
  const purge = channel
    .command("purge <channel>")
    .description("remove its history for everybody; who signs in needs the scope purge")
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
  const credentials = await askingCredentials(at, options, out, { view: View.ChannelPurger });
  const { removed } = await withRail(at, credentials, (rail) =>
    rail.ask(ProvisionerCommand.ChannelPurge, { channel }, PurgeAnswer),
  );
  out.item({ kind: "purged", channel, removed }, `removed ${removed} posts of #${channel}`);
  if (removed > 0) out.note("what members have been sent already stays in their inboxes");
}
