/** `cotal limits show` and `limits set`: how much history a space keeps (§8). */
import { Argument, type Command } from "commander";
import type { z } from "zod";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { replayWindowMs } from "../../shared/protocol/chat/channel-config.ts";
import { type HistoryLimit, LimitStore, LimitsAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { UsageError, argument, wholeNumber } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { table } from "../text.ts";

type SetOptions = { readonly age?: string; readonly count?: string };

export function registerLimits(program: Command): void {
  const limits = program.command("limits").description("history limits of the space");
  handle(limits.command("show").description("show them"), show);
  const set = limits
    .command("set")
    .description("change one; what lies past a lowered limit is removed at once")
    .addArgument(new Argument("<store>", "which history").choices(LimitStore.options))
    .option("--age <time>", "oldest message kept, such as 30d, or none")
    .option("--count <n>", "messages kept for each subject, or none");
  handle<SetOptions>(set, change);
}

async function show({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const answer = await withRail(at, await askingCredentials(at, options, out), (rail) =>
    rail.ask(ProvisionerCommand.LimitsShow, {}, LimitsAnswer),
  );
  print(out, answer);
}

async function change({ options, out, target }: Invocation<SetOptions>, store = ""): Promise<void> {
  const { age, count } = options;
  if (age === undefined && count === undefined) {
    throw new UsageError("nothing to set", { next: "add --age TIME, --count N, or both; none takes a bound away" });
  }
  const args = {
    store: LimitStore.parse(store),
    ...(age === undefined ? {} : { maxAgeSeconds: age === "none" ? null : argument(() => replayWindowMs(age)) / 1000 }),
    ...(count === undefined
      ? {}
      : { maxPerSubject: count === "none" ? null : wholeNumber("--count", 1, 1_000_000_000)(count) }),
  };
  const at = target();
  const answer = await withRail(at, await askingCredentials(at, options, out), (rail) =>
    rail.ask(ProvisionerCommand.LimitsSet, args, LimitsAnswer),
  );
  print(out, answer);
}

function print(out: Output, { chat, dm, delivery }: z.infer<typeof LimitsAnswer>): void {
  out.item(
    { kind: "limits", chat, dm, delivery },
    ...table([["history", "age", "count per subject"], row("chat", chat), row("dm", dm), row("delivery", delivery)]),
  );
}

function row(name: string, { maxAgeSeconds, maxPerSubject }: HistoryLimit): string[] {
  return [
    name,
    maxAgeSeconds === null ? "none" : span(maxAgeSeconds),
    maxPerSubject === null ? "none" : String(maxPerSubject),
  ];
}

function span(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3600],
    ["m", 60],
  ] as const) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}
