/**
 * `cotal deprovision WHO`: ends one agent. The ledger refuses it first, then the broker, then what
 * it left is removed. Each step is safe to run again, so a run that died is simply repeated.
 */
import { existsSync, rmSync } from "node:fs";
import type { Command } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { OWNER_LABEL, PRINCIPAL_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { resolveWho } from "../../shared/client/roster.ts";
import { DeprovisionAnswer, Done } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { askingCredentials } from "../identity.ts";
import { keptIdentities, resolvedOrKept } from "../kept.ts";
import { type Rail, operatorCredentials, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { wholeRoster } from "../roster.ts";
import { isOwnSpace } from "../signin.ts";
import type { Target } from "../target.ts";

export function registerDeprovision(program: Command): void {
  const command = program
    .command("deprovision <who>")
    .description("end an agent for good: its credential, its inbox, its grants; who: owner.actor as minted, or a name");
  handle(command, deprovision);
}

async function deprovision({ options, out, target }: Invocation<object>, who = ""): Promise<void> {
  const at = target();
  if (at.auth === "open") throw nothingToEnd();
  // Before anything begins: an end that no one here can complete would leave the name stuck (decision 4).
  if (!existsSync(trustPaths(at.state).operatorKey)) throw noTrust(at.state);
  const credentials = await askingCredentials(at, options, out);
  if (isOwnSpace(at)) throw signedIn(at.space);
  await withRail(at, credentials, async (rail) => {
    const named = await whoIsMeant(at, rail, who);
    const begun = await rail.ask(ProvisionerCommand.Deprovision, named, DeprovisionAnswer);
    const { principal, uid, opId, users } = begun;
    out.note(`the ledger refuses ${principal}`);
    if (users.length > 0) {
      await revoke(at, users);
      out.note(`the broker refuses ${counted(users.length, "key")} of it, and its connections are closed`);
    }
    await complete(at, rail, principal, { ...named, uid, opId });
    const removed = removeKept(at, principal);
    out.item(
      { kind: "deprovisioned", principal, uid, credentials: users.length, removed },
      `${principal} is gone`,
      ...removed.map((file) => `removed ${file}`),
    );
  });
}

/** `owner.actor`, where the owner may be the label it was minted with; or a name. */
async function whoIsMeant(at: Target, rail: Rail, who: string): Promise<Principal> {
  const dot = who.lastIndexOf(".");
  const [owner, actor] = [who.slice(0, Math.max(dot, 0)), who.slice(dot + 1)];
  if (OWNER_LABEL.test(owner) && PRINCIPAL_TOKEN.test(actor)) return { owner, actor };
  return resolvedOrKept(at, who, () => resolveWho(who, async () => [...(await wholeRoster(rail.reads)).entries]));
}

async function revoke({ state, space, server }: Target, users: readonly string[]): Promise<void> {
  await runTrust(TrustCommand.Revoke, { state, space, server, users: users.join(",") });
}

/** The last step. The operator who ends itself has no connection any more, and gets a new credential first. */
async function complete(at: Target, rail: Rail, principal: string, args: object): Promise<void> {
  if (principal !== dotForm(rail.me)) {
    await rail.ask(ProvisionerCommand.DeprovisionComplete, args, Done);
    return;
  }
  const { state, space, server } = at;
  await runTrust(TrustCommand.Space, { state, space, server });
  await withRail(at, operatorCredentials(at), (next) => next.ask(ProvisionerCommand.DeprovisionComplete, args, Done));
}

/** Kept credentials of exactly this principal are of no more use. */
function removeKept(at: Target, principal: string): string[] {
  const files = keptIdentities(at).flatMap((kept) => (dotForm(kept.principal) === principal ? [kept.file] : []));
  for (const file of files) rmSync(file);
  return files;
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

function noTrust(state: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `${state} does not hold the broker's trust`, {
    outcome: Outcome.NotExecuted,
    next: "run it where the space was made: only there can the broker be told to refuse a credential",
  });
}

function signedIn(space: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `people sign in to space ${space}: nobody holds a credential`, {
    outcome: Outcome.NotExecuted,
    next: "end a name with cotal actor revoke NAME",
  });
}

function nothingToEnd(): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, "an open space has no credentials that could end", {
    outcome: Outcome.NotExecuted,
    next: "stop the agent itself; use --auth static to have credentials",
  });
}
