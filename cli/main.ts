/**
 * The CLI: parses, runs one command, ends with its exit code.
 *
 * Invariants: usage errors end with 2 and every other refusal with its own code (exit.ts); under
 * `--json` each of them is one object on standard output.
 */
import { Command, CommanderError, Option } from "commander";
import version from "../package.json" with { type: "json" };
import { registerActor } from "./commands/actor.ts";
import { registerAsk } from "./commands/ask.ts";
import { registerBackup } from "./commands/backup.ts";
import { registerCall, registerScatter } from "./commands/call.ts";
import { registerChannels } from "./commands/channels.ts";
import { registerChannelSet } from "./commands/channel-set.ts";
import { registerDeprovision } from "./commands/deprovision.ts";
import { registerDm } from "./commands/dm.ts";
import { registerDoctor } from "./commands/doctor.ts";
import { registerDown } from "./commands/down.ts";
import { registerEndpoint } from "./commands/endpoint.ts";
import { registerDescribe, registerEndpoints } from "./commands/endpoints.ts";
import { registerHistory } from "./commands/history.ts";
import { registerJoin } from "./commands/join.ts";
import { registerKeys } from "./commands/keys.ts";
import { registerLeave } from "./commands/leave.ts";
import { registerGroups } from "./commands/groups.ts";
import { registerLimits } from "./commands/limits.ts";
import { registerLogin } from "./commands/login.ts";
import { registerLogout } from "./commands/logout.ts";
import { registerMint } from "./commands/mint.ts";
import { registerPending } from "./commands/pending.ts";
import { registerRestore } from "./commands/restore.ts";
import { registerSend } from "./commands/send.ts";
import { registerSpace } from "./commands/space.ts";
import { registerStatus } from "./commands/status.ts";
import { registerTask } from "./commands/task.ts";
import { registerTail } from "./commands/tail.ts";
import { registerTrace } from "./commands/trace.ts";
import { registerUp } from "./commands/up.ts";
import { registerWho } from "./commands/who.ts";
import { registerWhoami } from "./commands/whoami.ts";
import { Exit, UsageError, exitOf } from "./exit.ts";
import { asError } from "./faults.ts";
import { createOutput, watchBrokenPipe } from "./output.ts";

/** In the order in which `cotal --help` lists them. */
const COMMANDS: readonly ((program: Command) => void)[] = [
  registerUp,
  registerDown,
  registerStatus,
  registerDoctor,
  registerLogin,
  registerLogout,
  registerWhoami,
  registerActor,
  registerMint,
  registerDeprovision,
  registerSend,
  registerDm,
  registerAsk,
  registerTask,
  registerTail,
  registerPending,
  registerTrace,
  registerWho,
  registerChannels,
  registerChannelSet,
  registerHistory,
  registerJoin,
  registerLeave,
  registerEndpoints,
  registerEndpoint,
  registerDescribe,
  registerCall,
  registerScatter,
  registerSpace,
  registerLimits,
  registerGroups,
  registerBackup,
  registerRestore,
  registerKeys,
];

const HELP_CODES: ReadonlySet<string> = new Set(["commander.helpDisplayed", "commander.version"]);

function createProgram(json: boolean): Command {
  const program = new Command("cotal")
    .description("Spaces in which software agents talk: channels, direct messages, roles, presence.")
    .version(version.version)
    .option("--state <dir>", "state folder (COTAL_STATE; default ~/.local/state/cotal)")
    .option("--space <name>", "space (default main)")
    .option("--server <url>", "address of the broker, or a join link (cotal://host/space; COTAL_SERVER)")
    .option("--creds <file>", "act with this credential file")
    .option("--as <actor>", "act as this name of yours; a space of credential files keeps one for it")
    .addOption(new Option("--json", "one object a line, each with a kind"))
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      // A usage error is ours to print, once and in one shape.
      outputError: () => undefined,
      writeErr: (text) => void (json || process.stderr.write(text)),
    })
    .showHelpAfterError(false)
    .exitOverride();
  for (const register of COMMANDS) register(program);
  return program;
}

async function main(args: readonly string[]): Promise<number> {
  const json = args.includes("--json");
  const program = createProgram(json);
  try {
    await program.parseAsync([...args], { from: "user" });
    return Number(process.exitCode ?? Exit.Done);
  } catch (thrown) {
    if (thrown instanceof CommanderError && HELP_CODES.has(thrown.code)) return Exit.Done;
    const error = thrown instanceof CommanderError ? usage(thrown, commandOf(program, args)) : thrown;
    const said = asError(error);
    createOutput(json).error(said);
    return exitOf(said);
  }
}

/** A pipe holds 64 KiB: what a slow reader has not taken yet is still ours, and an exit would drop it. */
function written(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    stream.once("close", resolve);
    stream.write("", () => resolve());
  });
}

/** The command that was meant: each word that names one below the last. */
function commandOf(program: Command, args: readonly string[]): Command {
  let meant = program;
  for (const word of args) meant = meant.commands.find((one) => one.name() === word) ?? meant;
  return meant;
}

function nameOf(command: Command): string {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`;
}

function usage({ code, message }: CommanderError, meant: Command): UsageError {
  // `cotal` alone prints the help and ends as a wrong use.
  const text =
    code === "commander.help" ? "no command was given" : message.replace(/^error: /, "").replaceAll("\n", " ");
  const name = nameOf(meant);
  if (code !== "commander.missingArgument") {
    const help = meant.parent === null ? "cotal --help, or cotal COMMAND --help" : `${name} --help`;
    return new UsageError(text, { next: `run ${help}` });
  }
  // A shell takes #general for a comment, and what follows is never seen here.
  const hasChannel = meant.registeredArguments.some((argument) => argument.name() === "channel");
  const quote = hasChannel ? "; in a shell quote a channel that begins with #: '#general'" : "";
  return new UsageError(text, { next: `write it like ${name} ${meant.usage()}${quote}` });
}

watchBrokenPipe();
const code = await main(process.argv.slice(2));
await Promise.all([process.stdout, process.stderr].map(written));
// Whatever a library still holds open must not keep a finished command alive.
process.exit(code);
