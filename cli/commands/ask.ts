/** `cotal ask ROLE TEXT`: hands work to a role; one of its holders gets it. */
import type { Command } from "commander";
import { roleDurable } from "../../shared/protocol/base/names.ts";
import { argument } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import { type Invocation, handle } from "../program.ts";
import { printSent, textArgument } from "../sending.ts";
import { withSession } from "../session.ts";

export function registerAsk(program: Command): void {
  handle(program.command("ask <role> <text...>").description("ask a role: one of its holders gets it"), ask);
}

async function ask({ options, out, target }: Invocation<object>, role = "", ...words: string[]): Promise<void> {
  argument(() => roleDurable(role));
  const text = await textArgument(words);
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  const sent = await withSession({ target: at, credentials, out, stays: false }, (session) => session.ask(role, text));
  printSent(out, sent, { role }, `role ${role}`);
  if (sent.waitsFor !== undefined) {
    out.note("it waits in the queue: holders take requests through the delivery daemon, and none serves now (§8.1);");
    out.note("cotal status shows it");
  }
}
