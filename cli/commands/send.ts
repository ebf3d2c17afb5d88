/** `cotal send '#CHANNEL' TEXT`: posts to a channel; done means that it is stored. */
import type { Command } from "commander";
import { typedChannel } from "../channel-names.ts";
import { memberCredentials } from "../identity.ts";
import { type Invocation, handle } from "../program.ts";
import { printSent, textArgument } from "../sending.ts";
import { withSession } from "../session.ts";

export function registerSend(program: Command): void {
  const command = program
    .command("send <channel> <text...>")
    .description("post to a channel, such as '#general'; the text - reads standard input");
  handle(command, send);
}

async function send({ options, out, target }: Invocation<object>, name = "", ...words: string[]): Promise<void> {
  const channel = typedChannel(out, name);
  const text = await textArgument(words);
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  const sent = await withSession({ target: at, credentials, out, stays: false }, (session) =>
    session.send(channel, text),
  );
  printSent(out, sent, { channel }, `#${channel}`);
}
