/**
 * `cotal call`, `cotal cast` and `cotal scatter`: a command of any endpoint, by the contract that it describes.
 *
 * Invariant: what is known of the effect is told with every refusal, for a script that has to decide
 * whether it may ask again.
 */
import { Argument, type Command, Option } from "commander";
import type { CallTarget } from "../../shared/client/call-target.ts";
import type { CommandOptions } from "../../shared/client/endpoint-client.ts";
import type { Expected, InstanceAnswer } from "../../shared/client/scatter.ts";
import { parseDotForm } from "../../shared/protocol/base/principals.ts";
import { AuthzMode } from "../../shared/protocol/endpoint/grammar.ts";
import { Exit, UsageError } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { jsonArgument, span } from "../json-argument.ts";
import { type Rail, withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { indented, oneLine } from "../text.ts";
import { endpointName } from "./endpoints.ts";

type AskOptions = {
  readonly args?: string;
  readonly deadline?: number;
  readonly target?: string;
  readonly uid?: string;
  readonly mode?: AuthzMode;
};
type OneOptions = AskOptions & { readonly instance?: string };
type CallOptions = OneOptions & { readonly retry?: boolean };

export function registerCall(program: Command): void {
  const call = asked(program, "call", "call a command and print what it answers")
    .option("--instance <id>", "one instance, as cotal endpoints shows it")
    .option("--retry", "repeat until the deadline what can safely be repeated; never a change that may have happened");
  handle<CallOptions>(call, runCall);
  const cast = asked(program, "cast", "send a command without waiting for an answer").option(
    "--instance <id>",
    "one instance, as cotal endpoints shows it",
  );
  handle<OneOptions>(cast, runCast);
}

export function registerScatter(program: Command): void {
  handle<AskOptions>(
    asked(program, "scatter", "ask every instance of an endpoint, and say who did not answer"),
    runScatter,
  );
}

function asked(program: Command, name: string, about: string): Command {
  return program
    .command(name)
    .description(about)
    .addArgument(new Argument("<endpoint>", "such as provisioner, or com.acme.deploy"))
    .addArgument(new Argument("<command>", "as cotal describe ENDPOINT lists it"))
    .option("--args <json>", "its arguments: JSON, @FILE, or - for standard input")
    .option(
      "--deadline <time>",
      "how long to wait for everything, such as 500ms, 15s, 2m (default 15s)",
      span("--deadline"),
    )
    .option("--target <who>", "whom a targeted command is about: self, or OWNER.ACTOR with --uid")
    .option("--uid <uid>", "the lifecycle of that target")
    .addOption(new Option("--mode <mode>", "on what right, where it is not the target's owner").choices(MODES));
}

const MODES = Object.values(AuthzMode).filter((mode) => mode !== AuthzMode.Self);

/** Resolves the arguments, and runs with a rail. */
async function asking<T>(
  { options, out, target }: Invocation<AskOptions>,
  name: string,
  run: (rail: Rail, endpoint: string, args: unknown, more: CommandOptions) => Promise<T>,
): Promise<T> {
  const endpoint = endpointName(name);
  const args = await jsonArgument("--args", options.args);
  const about = targetOf(options);
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  const { deadline } = options;
  const more: CommandOptions = {
    ...(deadline === undefined ? {} : { deadlineMs: deadline }),
    ...(about === undefined ? {} : { target: about }),
  };
  return withRail(at, credentials, (rail) => run(rail, endpoint, args, more));
}

function targetOf({ target, uid, mode }: AskOptions): CallTarget | undefined {
  if (target === undefined) {
    if (uid === undefined && mode === undefined) return undefined;
    throw new UsageError("it is not said about whom", { next: "add --target self, or --target OWNER.ACTOR" });
  }
  if (target === AuthzMode.Self) {
    if (uid === undefined && mode === undefined) return { mode: AuthzMode.Self };
    throw new UsageError("--target self takes neither --uid nor --mode", { next: "leave them out" });
  }
  const who = parseDotForm(target);
  if (who === undefined || uid === undefined) {
    throw new UsageError("--target is self, or OWNER.ACTOR with the --uid of its lifecycle", {
      next: "cotal who --json shows id and lifecycleUid of each",
    });
  }
  return { mode: mode === undefined || mode === AuthzMode.Self ? AuthzMode.Owner : mode, ...who, lifecycleUid: uid };
}

async function runCall(invocation: Invocation<CallOptions>, name = "", command = ""): Promise<void> {
  const { instance, retry = false } = invocation.options;
  const { data, ...by } = await asking(invocation, name, (rail, endpoint, args, more) =>
    rail.endpoints.call(endpoint, command, args, { ...more, retry, ...(instance === undefined ? {} : { instance }) }),
  );
  // What comes without data is null: an answer all the same.
  invocation.out.item({ kind: "answer", ...by, data: data ?? null }, jsonText(data));
}

async function runCast(invocation: Invocation<OneOptions>, name = "", command = ""): Promise<void> {
  const { instance } = invocation.options;
  await asking(invocation, name, (rail, endpoint, args, more) =>
    rail.endpoints.cast(endpoint, command, args, { ...more, ...(instance === undefined ? {} : { instance }) }),
  );
  invocation.out.item({ kind: "cast" }, "sent; whether somebody received it is not known");
}

async function runScatter(invocation: Invocation<AskOptions>, name = "", command = ""): Promise<Exit> {
  const { out } = invocation;
  const result = await asking(invocation, name, (rail, endpoint, args, { deadlineMs, target }) =>
    rail.endpoints.scatter(endpoint, command, args, {
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
      ...(target === undefined ? {} : { target }),
    }),
  );
  for (const answer of result.answers) show(out, "answer", answer);
  for (const kind of ["late", "duplicate", "unexpected"] as const) {
    for (const answer of result[kind]) show(out, kind, answer, `${kind}: `);
  }
  for (const kind of ["missing", "churn"] as const) {
    for (const one of result[kind]) owed(out, kind, one);
  }
  const { complete, nobody } = result;
  const counts = { expected: result.expected.length, answers: result.answers.length };
  out.item(
    { kind: "scattered", complete, nobody, ...counts },
    `${counts.answers} of ${counts.expected} answered${nobody ? "; nobody received it" : ""}`,
  );
  return complete ? Exit.Done : Exit.TimedOut;
}

function show(out: Output, kind: string, answer: InstanceAnswer, lead = ""): void {
  const { instanceId, epoch } = answer;
  const who = `${lead}${instanceId}  `;
  if (answer.ok) {
    const { data } = answer;
    return out.item({ kind, instanceId, epoch, ok: true, data: data ?? null }, `${who}${jsonText(data)}`);
  }
  const { code, message, outcome } = answer.error;
  out.item(
    { kind, instanceId, epoch, ok: false, error: { code, message, outcome } },
    `${who}${code}: ${oneLine(message)}`,
  );
}

const OWED = { missing: "said nothing", churn: "was restarted or registered anew meanwhile" } as const;

function owed(out: Output, kind: keyof typeof OWED, { instanceId, epoch }: Expected): void {
  out.item({ kind, instanceId, epoch }, `${instanceId}  ${OWED[kind]}`);
}

function jsonText(data: unknown): string {
  return indented(JSON.stringify(data ?? null, undefined, 2), 0);
}
