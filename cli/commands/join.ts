/** `cotal join [LINK]`: enters a space, shows up in its roster, and stays in the link's channels. */
import type { Command } from "commander";
import { type Exit, UsageError, wholeNumber } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import { defaultChannels, joinAll } from "../joining.ts";
import { listen } from "../listening.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";
import { resolveTarget } from "../target.ts";
import { seconds } from "./tail.ts";

type JoinOptions = { readonly count?: number; readonly timeout?: number };

export function registerJoin(program: Command): void {
  const command = program
    .command("join [link]")
    .description("enter a space and stay: cotal://host:4222/space?channel=general")
    .option("--count <n>", "leave after so many messages", wholeNumber("--count", 1, 1_000_000_000))
    .option("--timeout <s>", "leave after so many seconds", seconds);
  handle<JoinOptions>(command, join);
}

async function join({ options, out, target }: Invocation<JoinOptions>, link?: string): Promise<Exit> {
  if (link !== undefined && options.server !== undefined) {
    throw new UsageError("a link and --server both say where the space is", { next: "use one of them" });
  }
  if (link !== undefined && !/^cotals?:/i.test(link)) {
    throw new UsageError("this is no join link", {
      next: "write cotal://host:4222/space?channel=general; a channel of this space is heard with cotal tail --channel NAME",
    });
  }
  const at = link === undefined ? target() : resolveTarget({ ...options, server: link });
  const credentials = await memberCredentials(at, options, out);
  return withSession({ target: at, credentials, out, stays: true }, async (session) => {
    await joinAll(session, out, at.channels.length > 0 ? at.channels : defaultChannels(session));
    const { count, timeout } = options;
    return listen(session, out, {
      count,
      dm: true,
      role: true,
      only: at.channels.length > 0 ? at.channels : undefined,
      timeoutMs: timeout === undefined ? undefined : timeout * 1000,
    });
  });
}
