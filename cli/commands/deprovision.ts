/**
 * `cotal deprovision WHO`: ends one agent. The ledger refuses it first, then the broker, then what
 * it left is removed. Each step is safe to run again, so a run that died is simply repeated.
 */
import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { type Principal, samePrincipal } from "../../shared/protocol/base/principals.ts";
import { resolveWho } from "../../shared/client/roster.ts";
import { DeprovisionAnswer, Done } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { operatorCredentials, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { wholeRoster } from "../roster.ts";
import type { Target } from "../target.ts";

export function registerDeprovision(program: Command): void {
  const command = program
    .command("deprovision <who>")
    .description("end an agent for good: its credential, its inbox, its grants");
  handle(command, deprovision);
}

async function deprovision({ out, target }: Invocation<object>, who = ""): Promise<void> {
  const at = target();
  if (at.auth === "open") throw nothingToEnd();
  // Before anything begins: an end that no one here can complete would leave the name stuck (decision 4).
  if (!existsSync(trustPaths(at.state).operatorKey)) throw noTrust(at.state);
  await withRail(at, operatorCredentials(at), async (rail) => {
    const { owner, actor } = await resolveWho(who, async () => [...(await wholeRoster(rail.reads)).entries]);
    const begun = await rail.ask(ProvisionerCommand.Deprovision, { owner, actor }, DeprovisionAnswer);
    out.note(`the ledger refuses ${owner}.${actor}`);
    if (begun.users.length > 0) {
      const { state, space, server } = at;
      await runTrust(TrustCommand.Revoke, { state, space, server, users: begun.users.join(",") });
      out.note(`the broker refuses its ${begun.users.length} credentials, and its connections are closed`);
    }
    const { uid, opId } = begun;
    await rail.ask(ProvisionerCommand.DeprovisionComplete, { owner, actor, uid, opId }, Done);
    const removed = removeKept(at, { owner, actor });
    out.item(
      { kind: "deprovisioned", principal: `${owner}.${actor}`, uid, credentials: begun.users.length, removed },
      `${owner}.${actor} is gone`,
      ...removed.map((file) => `removed ${file}`),
    );
  });
}

/** Kept credentials of exactly this principal are of no more use. */
function removeKept({ state, space }: Target, who: Principal): string[] {
  const folder = trustPaths(state).agents(space);
  if (!existsSync(folder)) return [];
  const removed: string[] = [];
  for (const name of readdirSync(folder).filter((file) => file.endsWith(".creds"))) {
    const file = join(folder, name);
    if (!holds(file, who)) continue;
    rmSync(file);
    removed.push(file);
  }
  return removed;
}

function holds(file: string, who: Principal): boolean {
  try {
    return samePrincipal(readCredsFile(file).view.principal, who);
  } catch {
    // Not a credential file: not ours to remove.
    return false;
  }
}

function noTrust(state: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `${state} does not hold the broker's trust`, {
    outcome: Outcome.NotExecuted,
    next: "run it where the space was made: only there can the broker be told to refuse a credential",
  });
}

function nothingToEnd(): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, "an open space has no credentials that could end", {
    outcome: Outcome.NotExecuted,
    next: "stop the agent itself; use --auth static to have credentials",
  });
}
