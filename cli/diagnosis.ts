/**
 * What `cotal doctor` looks at, part by part.
 *
 * Invariants
 * 1. A part that is down is a finding and never an end: the others are looked at all the same, and
 *    what could not be looked at is a finding too.
 * 2. Every finding says what to do.
 */
import { existsSync } from "node:fs";
import { ProvisionerCommand } from "../shared/grants/commands.ts";
import type { Credentials } from "../shared/client/identity.ts";
import { protocolFindings } from "../shared/protocol/endpoint/protocol-findings.ts";
import { CheckAnswer, type Finding } from "../shared/protocol/endpoint/provisioner-shapes.ts";
import { readCredsFile } from "../shared/trust/creds.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { brokerVersion, findBroker } from "../launcher/broker-binary.ts";
import { type ChildStatus, planeStatus } from "../launcher/control.ts";
import { TrustCommand, runTrust } from "../launcher/trust-program.ts";
import { asError } from "./faults.ts";
import { heldGateFindings } from "./held-gates.ts";
import { operatorCredentials, withRail } from "./operator.ts";
import { nothingRuns, reached, renewOperator } from "./reach.ts";
import { readLogin } from "./login-file.ts";
import { serverFindings } from "./server-findings.ts";
import { exchangeOnce, isUserSpace, reachExchange } from "./signin.ts";
import type { Target } from "./target.ts";

export type Diagnosis = { readonly findings: readonly Finding[]; readonly checked: readonly string[] };

type Part = { readonly name: string; readonly look: (target: Target) => Promise<readonly Finding[]> };

const BINARY: Part = { name: "broker binary", look: binary };
const PLANE: Part = { name: "daemons", look: plane };
const SERVERS: Part = { name: "broker limits", look: servers };
const CREDENTIAL: Part = { name: "operator credential", look: credential };
const LIFECYCLES: Part = {
  name: "lifecycles",
  look: (at) => withRail(at, operatorCredentials(at), heldGateFindings),
};

/**
 * Looks at everything; `local`: the plane of this machine is meant, not somebody else's server. The
 * space is asked with the credentials named (profile probe will do), else with the operator's.
 */
export async function diagnose(target: Target, local: boolean, named?: Credentials): Promise<Diagnosis> {
  const isOpen = target.auth === "open";
  const space: Part = { name: "space", look: (at) => check(at, named ?? operatorCredentials(at)) };
  const signIn: Part = { name: "sign-in", look: (at) => exchange(at, named) };
  const parts = [
    ...(local ? [BINARY, PLANE] : []),
    ...(isOpen ? [] : [SERVERS, CREDENTIAL]),
    ...(isUserSpace(target) ? [signIn] : []),
    ...(isUserSpace(target) && named === undefined ? [LIFECYCLES] : []),
    space,
  ];
  const looked = await Promise.all(parts.map((part) => look(part, target)));
  const findings = merged(looked.flat());
  return {
    findings,
    checked: parts.map(({ name }) => name),
  };
}

async function look({ name, look: run }: Part, target: Target): Promise<readonly Finding[]> {
  try {
    return await run(target);
  } catch (thrown) {
    return [asFinding(name, thrown)];
  }
}

/** An error as a finding. */
export function asFinding(check: string, thrown: unknown): Finding {
  const { message, next } = asError(thrown);
  return { check, level: "error", message, next: next ?? "look at the daemon's log in the state folder" };
}

/** A broker that is away is found by several parts in the same words: it is said once. */
function merged(findings: readonly Finding[]): Finding[] {
  const seen = new Set<string>();
  return findings.filter(({ message }) => {
    if (seen.has(message)) return false;
    seen.add(message);
    return true;
  });
}

async function binary(): Promise<readonly Finding[]> {
  await brokerVersion(findBroker(process.env));
  return [];
}

async function plane({ state }: Target): Promise<readonly Finding[]> {
  const seen = await planeStatus(state);
  switch (seen.kind) {
    case "none":
      return [asFinding("daemons", nothingRuns(state))];
    case "crashed":
      return [
        {
          check: "launcher",
          level: "error",
          message: `the launcher (process ${seen.record.launcher.pid}) was killed${leftText(seen.left.map(({ name }) => name))}`,
          next: "start it again with cotal up, which ends what is left",
        },
      ];
    case "running":
      return seen.children.flatMap((child) => childFindings(state, child));
  }
}

function leftText(names: readonly string[]): string {
  return names.length === 0 ? "" : ` and left its ${names.join(" and ")} running`;
}

function childFindings(state: string, { name, health, failing, restarts }: ChildStatus): Finding[] {
  const log = `${state}/logs/${name}.log`;
  switch (health) {
    case "ok":
      return [];
    case "down": {
      const message = `${name} is not running${restarts === 0 ? "" : ` (started again ${restarts} times)`}`;
      return [{ check: name, level: "error", message, next: `the launcher starts it again; if it stays, read ${log}` }];
    }
    case "silent": {
      const message = `${name} runs and does not answer`;
      return [
        {
          check: name,
          level: "error",
          message,
          next: `read ${log}; if it stays, stop with cotal down and start again`,
        },
      ];
    }
    case "failing":
      return failing.map((check) => ({
        check: `${name} ${check.name}`,
        level: "error" as const,
        message: check.detail,
        next: check.next,
      }));
  }
}

/** Supplement H: floor, control line, payload and disk of every server there is. */
async function servers(target: Target): Promise<readonly Finding[]> {
  const { state, server } = target;
  if (!existsSync(trustPaths(state).operatorKey)) return [];
  return serverFindings(await reached(target, () => runTrust(TrustCommand.Servers, { state, server })));
}

const SOON_SECONDS = 7 * 86_400;

async function credential({ state, space: name }: Target): Promise<readonly Finding[]> {
  const file = trustPaths(state).operatorCreds(name);
  if (!existsSync(file)) return [];
  const { expires } = readCredsFile(file).view;
  const left = expires === undefined ? Number.POSITIVE_INFINITY : expires - Date.now() / 1000;
  if (left > SOON_SECONDS) return [];
  const days = Math.floor(left / 86_400);
  const message =
    left <= 0 ? "the operator's credential has expired" : `the operator's credential expires in ${days} days`;
  const level = left <= 0 ? "error" : "warning";
  return [
    {
      check: "operator credential",
      level,
      message,
      next: renewOperator({ state, space: name }),
    },
  ];
}

/** The exchange's word on who is named; the broker says nothing about why it refuses somebody. */
async function exchange(target: Target, named?: Credentials): Promise<readonly Finding[]> {
  if (named?.kind === "user") await exchangeOnce(target, named.actor);
  else if (readLogin(target)?.kind !== "out") await reachExchange(target);
  return [];
}

/** Long enough for a large space; a daemon that hangs is told by its health as well. */
const CHECK_MS = 8000;

/** What the provisioner sees: store shapes, durables, who serves by another protocol, clock. */
async function check(target: Target, credentials: Credentials): Promise<readonly Finding[]> {
  if (credentials.kind === "user") {
    // Somebody who signs in may look at little more than this: that they get in is what is asked.
    return withRail(target, credentials, async ({ reads, endpoints }) => {
      await reads.space();
      return protocolFindings(await endpoints.endpoints());
    });
  }
  const answer = await withRail(target, credentials, (rail) =>
    rail.ask(ProvisionerCommand.Check, {}, CheckAnswer, CHECK_MS),
  );
  return answer.findings;
}
