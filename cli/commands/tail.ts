/** `cotal tail`: shows what comes, from channels, direct messages and the own role's queue. */
import type { Command } from "commander";
import { typedPattern } from "../channel-names.ts";
import { UsageError, type Exit, listOf, wholeNumber } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import { defaultChannels, joinAll } from "../joining.ts";
import { listen } from "../listening.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";

type TailOptions = {
  readonly channel?: string[];
  readonly dm?: boolean;
  readonly role?: boolean | string;
  readonly count?: number;
  readonly timeout?: number;
};

export function registerTail(program: Command): void {
  const command = program
    .command("tail")
    .description(
      "show what comes; without a choice: #general (or what the credential reads), direct messages, and the role's queue if one is held",
    )
    .option("--channel <channels>", "a channel or pattern; may be given again", collected)
    .option("--dm", "direct messages")
    .option("--role [role]", "requests to the role; named where no credential file says it")
    .option("--count <n>", "end after so many", wholeNumber("--count", 1, 1_000_000_000))
    .option("--timeout <s>", "end after so many seconds; exit 4 if a count was not reached", seconds);
  handle<TailOptions>(command, tail);
}

function collected(text: string, all: string[] | undefined): string[] {
  const named = listOf(text);
  if (named.length === 0) throw new UsageError("--channel names no channel", { next: "name one, such as general" });
  return [...(all ?? []), ...named];
}

export function seconds(text: string): number {
  const value = /^\d{1,7}(?:\.\d{1,3})?$/.test(text) ? Number(text) : 0;
  if (value > 0) return value;
  throw new UsageError(`--timeout takes seconds, not ${JSON.stringify(text)}`, { next: "write it like 10 or 0.5" });
}

async function tail({ options, out, target }: Invocation<TailOptions>): Promise<Exit> {
  const { count, timeout } = options;
  const at = target();
  const isChosen = options.channel !== undefined || options.dm === true || options.role !== undefined;
  const named = options.channel ?? (at.channels.length > 0 || isChosen ? at.channels : undefined);
  const channels = named?.map((name) => typedPattern(out, name));
  const dm = options.dm === true || !isChosen;
  const role = options.role !== undefined || !isChosen;
  const credentials = await memberCredentials(at, options, out);
  const use = {
    target: at,
    credentials,
    out,
    stays: true,
    ...(typeof options.role === "string" ? { role: options.role } : {}),
  };
  return withSession(use, async (session) => {
    if (options.role === true && session.me.role === undefined) throw noRole();
    await joinAll(session, out, channels ?? defaultChannels(session));
    return listen(session, out, {
      count,
      dm,
      role,
      only: channels,
      timeoutMs: timeout === undefined ? undefined : timeout * 1000,
    });
  });
}

function noRole(): UsageError {
  return new UsageError("which role is not said by this identity", {
    next: "name it: tail --role ROLE; a credential file says it if it was minted with --role ROLE",
  });
}
