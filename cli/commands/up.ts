/** `cotal up`: brings the embedded space up and keeps it, or starts it in the background. */
import { type Command, Option } from "commander";
import { AuthMode } from "../../shared/protocol/chat/space-settings.ts";
import { startInBackground } from "../../launcher/background.ts";
import type { PlaneEvent, PlaneFacts } from "../../launcher/events.ts";
import { livePlane } from "../../launcher/plane-record.ts";
import { alreadyRuns } from "../../launcher/plane.ts";
import { runPlane } from "../../launcher/run-plane.ts";
import { defaultState } from "../../launcher/state-folder.ts";
import { UsageError, wholeNumber } from "../exit.ts";
import { type Output, brokenOutput } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { DEFAULT_SPACE, spaceOf, stateOf } from "../target.ts";
import { oneLine } from "../text.ts";

type UpOptions = {
  readonly port?: number;
  readonly auth?: AuthMode;
  readonly open?: boolean;
  readonly detach?: boolean;
};

export function registerUp(program: Command): void {
  const command = program
    .command("up")
    .description("start a space on this machine and keep it running")
    .option("--port <n>", "port of the broker (default 4222; remembered)", wholeNumber("--port", 1, 65_535))
    .addOption(new Option("--auth <mode>", "how people get in (default user; remembered)").choices(AuthMode.options))
    .option("--open", "short for --auth open: no authentication, for trying things only")
    .option("--detach", "return once it is ready; cotal down stops it");
  handle<UpOptions>(command, up);
}

async function up({ options, out }: Invocation<UpOptions>): Promise<void> {
  if (options.server !== undefined) {
    throw new UsageError("up starts a broker and takes no --server", { next: "name its port with --port N" });
  }
  const order = { state: stateOf(options), space: spaceOf(options), port: options.port, auth: authOf(options) };
  const steps: PlaneEvent[] = [];
  const report = (event: PlaneEvent): void => {
    if (event.kind === "step") steps.push(event);
    show(out, event);
  };
  if (options.detach === true) {
    const facts = alreadyUp(order) ?? (await startInBackground(order, report));
    ready(out, facts, steps, true);
    return;
  }
  // Children of ours run: whoever closes the terminal, or ends a tee, still wants them ended in order.
  const until = brokenOutput();
  await runPlane({ ...order, report, until, ready: (facts) => ready(out, facts, steps, false) });
  out.item({ kind: "stopped", state: order.state }, "stopped");
}

function authOf({ auth, open }: UpOptions): AuthMode | undefined {
  if (open !== true) return auth;
  if (auth !== undefined && auth !== "open") {
    throw new UsageError(`--open and --auth ${auth} exclude each other`, { next: "use one of them" });
  }
  return "open";
}

/** A second `--detach` finds the plane that runs and is content with it, if it is the one meant. */
function alreadyUp(order: Parameters<typeof startInBackground>[0]): PlaneFacts | undefined {
  const plane = livePlane(order.state);
  if (plane === undefined) return undefined;
  const isMeant =
    plane.phase === "ready" &&
    (order.port === undefined || order.port === plane.port) &&
    (order.auth === undefined || order.auth === plane.auth) &&
    order.space === plane.space;
  if (!isMeant) throw alreadyRuns(order.state);
  return { server: plane.server, port: plane.port, space: plane.space, auth: plane.auth, state: order.state, ms: 0 };
}

function ready(out: Output, facts: PlaneFacts, steps: readonly PlaneEvent[], detached: boolean): void {
  const { server, port, space, auth, state, ms } = facts;
  const item = {
    kind: "ready",
    server,
    port,
    space,
    auth,
    state,
    ms,
    steps: steps.flatMap((event) => (event.kind === "step" ? [{ step: event.step, ms: event.ms }] : [])),
  };
  const where = [
    // A new terminal may not have this one's COTAL_STATE.
    ...(state === defaultState({ ...process.env, COTAL_STATE: "" }) ? [] : ["--state", quoted(state)]),
    ...(space === DEFAULT_SPACE ? [] : ["--space", space]),
  ];
  const line = (...words: string[]): string => out.style("cyan", ["npx cotal", ...words, ...where].join(" "));
  const took = ms === 0 ? "is up already" : `is ready after ${(ms / 1000).toFixed(1)} s`;
  out.item(
    item,
    "",
    out.style("bold", `Space ${space} ${took}.`),
    ...warning(out, auth),
    "",
    "Type next, each in a terminal of its own:",
    `  ${line("tail", "--as bob")}`,
    `  ${line("send", "'#general'", "'hello bob'", "--as alice")}`,
    "",
    `address  ${server}`,
    `auth     ${auth}`,
    `state    ${state}`,
    detached ? `stop     ${line("down")}` : `stop     Ctrl-C here`,
    "",
  );
}

const WARNINGS: Readonly<Partial<Record<AuthMode, string>>> = {
  open: "OPEN SPACE: nobody's identity is proved; anybody who reaches the port may read, write and delete all of it",
  user: "DEVELOPMENT ISSUER: whoever can read the state folder is signed in as this space's one person",
};

function warning(out: Output, auth: AuthMode): string[] {
  const text = WARNINGS[auth];
  return text === undefined ? [] : [out.style("red", text)];
}

function quoted(text: string): string {
  return /^[\w./@:+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function show(out: Output, event: PlaneEvent): void {
  switch (event.kind) {
    case "step":
      out.note(
        `${out.style("green", "ok")} ${event.step.padEnd(12)} ${`${event.ms} ms`.padStart(8)}  ${event.detail ?? ""}`,
      );
      break;
    case "waiting":
      announce(out, event, `waiting for the ${event.child}: ${event.why}`);
      break;
    case "died":
      announce(out, event, `${event.child} died: ${event.why}; it is started again in ${event.waitMs} ms`);
      break;
    case "restarted":
      announce(out, event, `${event.child} is back after ${event.ms} ms`);
      break;
    case "warning":
      announce(out, event, `warning: ${event.message}; ${event.next}`);
      break;
    case "stopping":
      out.note("stopping; Ctrl-C again ends everything at once");
  }
}

function announce(out: Output, event: PlaneEvent, text: string): void {
  // What a child says of itself may quote the broker.
  out.notice({ ...event }, oneLine(text));
}
