/** `cotal history '#CH'`: reads back what a channel keeps, within the read list of the credential. */
import type { Command } from "commander";
import { typedChannel } from "../channel-names.ts";
import { wholeNumber } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import { printMessage } from "../messages.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";

const DEFAULT_LIMIT = 50;

type HistoryOptions = { readonly limit?: number };

export function registerHistory(program: Command): void {
  const command = program
    .command("history <channel>")
    .description("read back the last messages of a channel, oldest first")
    .option("--limit <n>", `how many (default ${DEFAULT_LIMIT})`, wholeNumber("--limit", 1, 100_000));
  handle<HistoryOptions>(command, history);
}

async function history({ options, out, target }: Invocation<HistoryOptions>, name = ""): Promise<void> {
  const channel = typedChannel(out, name);
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  const items = await withSession({ target: at, credentials, out, stays: false }, (session) =>
    session.history(channel, { limit: options.limit ?? DEFAULT_LIMIT }),
  );
  for (const item of items) printMessage(out, item);
  if (items.length === 0) out.note(`#${channel} keeps no message`);
}
