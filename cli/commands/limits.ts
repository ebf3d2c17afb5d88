/** `cotal limits show` and `limits set`: how much history a space keeps (§8). */
import { Argument, type Command } from "commander";
import type { z } from "zod";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { replayWindowMs } from "../../shared/protocol/chat/channel-config.ts";
import {
  type HistoryLimit,
  LimitStore,
  LimitsAnswer,
  LimitsPreviewAnswer,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { UsageError, argument, wholeNumber } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { oneLine, table } from "../text.ts";

type SetOptions = { readonly age?: string; readonly count?: string; readonly dryRun?: boolean };

export function registerLimits(program: Command): void {
  const limits = program.command("limits").description("history limits of the space");
  handle(limits.command("show").description("show them"), show);
  const set = limits
    .command("set")
    .description("change one; what lies past a lowered limit is removed at once, which --dry-run shows before")
    .addArgument(new Argument("<store>", "which history").choices(LimitStore.options))
    .option("--age <time>", "oldest message kept, such as 30d, or none")
    .option("--count <n>", "messages kept for each subject, or none")
    .option("--dry-run", "change nothing, and show what it would remove");
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
  return withRail(at, await askingCredentials(at, options, out), async (rail) => {
    if (options.dryRun !== true) return print(out, await rail.ask(ProvisionerCommand.LimitsSet, args, LimitsAnswer));
    preview(out, await rail.ask(ProvisionerCommand.LimitsPreview, args, LimitsPreviewAnswer));
  });
}

const WHOSE = { chat: "sender and channel", dm: "receiver and sender", delivery: "member" } as const;

function preview(out: Output, answer: LimitsPreviewAnswer): void {
  const { store, before, after, messages, subjects, most, whole } = answer;
  const rows = most.map((one) => [oneLine(one.of), String(one.messages), String(one.kept)]);
  const more = subjects - most.length;
  out.item(
    { kind: "limits-preview", store, before, after, messages, subjects, most, whole },
    `${store}: ${spoken(before)} now; ${spoken(after)} would remove ${messages} of ${subjects}${whole ? "" : " or more"}, at once and for good`,
    ...(rows.length === 0 ? [] : table([[WHOSE[store], "removed", "kept"], ...rows])),
    ...(more > 0 ? [`and ${more} more`] : []),
    "nothing was changed",
  );
}

const spoken = (limit: HistoryLimit): string => {
  const [, age, count] = row("", limit);
  return `age ${age}, count ${count}`;
};

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
