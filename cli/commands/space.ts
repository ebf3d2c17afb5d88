/** `cotal space add NAME` and `space show`. */
import { type Command, Option } from "commander";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { livePlane } from "../../launcher/plane-record.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { spaceToken } from "../../shared/protocol/base/subjects.ts";
import { AuthMode } from "../../shared/protocol/chat/space-settings.ts";
import { keptAuthMode } from "../../shared/trust/space-file.ts";
import { argument } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { type Rail, withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { takenUp } from "../taken-up.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

type AddOptions = { readonly auth?: AuthMode; readonly open?: boolean };

export function registerSpace(program: Command): void {
  const space = program.command("space").description("spaces of a broker");
  const add = space
    .command("add <name>")
    .description("add a space to the running broker")
    .addOption(
      new Option("--auth <mode>", "how people get in (default: as the broker's first space)").choices(AuthMode.options),
    )
    .option("--open", "short for --auth open");
  handle<AddOptions>(add, addSpace);
  handle(space.command("show").description("show the settings of the space"), showSpace);
}

async function addSpace({ options, out, target }: Invocation<AddOptions>, name = ""): Promise<void> {
  const space = argument(() => spaceToken(name));
  if (space !== name) {
    const message = `${oneLine(name)} is written ${space}: a space has letters, digits, _ and - only`;
    out.notice({ kind: "notice", about: "renamed", message }, message);
  }
  const at = { ...target(), space };
  const auth = options.open === true ? "open" : (options.auth ?? at.auth ?? "user");
  // Without a word a space keeps the mode it was made with.
  const isNew = keptAuthMode(at.state, space) === undefined;
  const asked = options.auth === undefined && !isNew ? {} : { auth };
  refuseMode(at, auth);
  if (livePlane(at.state) === undefined && !at.isNamed) {
    throw new CotalError(ErrorCode.Unavailable, `nothing runs on ${at.state}`, {
      outcome: Outcome.NotExecuted,
      next: "start it with cotal up",
    });
  }
  await runTrust(TrustCommand.Space, { state: at.state, space, server: at.server, ...asked });
  out.note(`accounts and keys of ${space} are made`);
  const settings = await takenUp(at);
  show(out, settings);
}

/** The modes that can't be added to this broker, each with its reason. */
function refuseMode({ auth: own, state }: Target, auth: AuthMode): void {
  const refuse = (code: ErrorCode, message: string, next: string): never => {
    throw new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
  };
  if (own === "open") {
    refuse(
      ErrorCode.FailedPrecondition,
      "this broker is open: it has no accounts that could keep spaces apart",
      "start another open space with cotal up --open --space NAME --state DIR, or use an authenticated broker",
    );
  }
  if (auth === "user" && own === "static") {
    refuse(
      ErrorCode.FailedPrecondition,
      `the space of ${state} runs without the auth service`,
      "start a broker of its own for people who sign in: cotal up --auth user --state DIR --port N",
    );
  }
  if (auth === "open") {
    refuse(
      ErrorCode.FailedPrecondition,
      `the broker of ${state} is authenticated, and no part of it can be open`,
      "start an open broker of its own: cotal up --open --state DIR --port N",
    );
  }
}

async function showSpace({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  show(out, await withRail(at, credentials, ({ reads }) => reads.space()));
}

function show(out: Output, { settings }: Awaited<ReturnType<Rail["reads"]["space"]>>): void {
  const { space, auth, replicas, groups, daemons, limits } = settings;
  out.item(
    { kind: "space", ...settings },
    ...table([
      ["space", space],
      ["auth", auth],
      ["replicas", String(replicas)],
      ["groups", String(groups)],
      ...Object.entries(daemons).map(([name, principal]) => [oneLine(name), oneLine(principal)]),
      ["limits", `${limits.agent.subs} subscriptions, ${limits.agent.payload} bytes a message`],
    ]),
  );
}
