/** `cotal dm WHO TEXT`: writes to one peer, here or away. */
import type { Command } from "commander";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { addressee } from "../addressee.ts";
import { memberCredentials } from "../identity.ts";
import { type Invocation, handle } from "../program.ts";
import { printSent, textArgument } from "../sending.ts";
import { withSession } from "../session.ts";

export function registerDm(program: Command): void {
  const command = program
    .command("dm <who> <text...>")
    .description("write to one peer: its owner.actor, the name of an actor of yours, or of one who is here");
  handle(command, dm);
}

async function dm({ options, out, target }: Invocation<object>, who = "", ...words: string[]): Promise<void> {
  const text = await textArgument(words);
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  await withSession({ target: at, credentials, out, stays: false }, async (session) => {
    const to = dotForm(await addressee(at, { me: session.me.principal, resolve: session.resolve }, who, out));
    printSent(out, await session.dm(to, text), { to }, to);
  });
}
