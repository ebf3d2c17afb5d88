/**
 * `cotal restore`: makes a space of a backup, on a broker that has none of that name.
 *
 * ```
 * files verified ─▶ keys anew ─▶ filled ─▶ read again and proved ─▶ given to its daemons ─▶ doctor
 * ```
 *
 * Invariant: nobody is served before it is proved. A run that ends half way is run again, and begins from nothing.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { z } from "zod";
import { openConnection } from "../../shared/broker/connect.ts";
import { readManifest, verifyFolder } from "../../shared/backup/folder.ts";
import type { Manifest } from "../../shared/backup/format.ts";
import { type RestoreReport, restoreSpace } from "../../shared/backup/restore-space.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../../shared/protocol/base/errors.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { withBroker } from "../../launcher/broker-alone.ts";
import { takeLock } from "../../launcher/lock.ts";
import { livePlane } from "../../launcher/plane-record.ts";
import { DEFAULT_PORT, readRemembered, writeRemembered } from "../../launcher/state-folder.ts";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { diagnose } from "../diagnosis.ts";
import { Exit, UsageError, wholeNumber } from "../exit.ts";
import { printFinding } from "../findings.ts";
import { keeperOptions } from "../keeper.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { takenUp } from "../taken-up.ts";
import { type Target, stateOf } from "../target.ts";
import { table } from "../text.ts";

type RestoreOptions = { readonly port?: number; readonly replicas?: number };

export function registerRestore(program: Command): void {
  const command = program
    .command("restore <folder>")
    .description("make a space of a backup, on a broker that has none of that name")
    .option("--port <n>", "port of the broker, where none runs on the state folder", wholeNumber("--port", 1, 65_535))
    .option(
      "--replicas <n>",
      "replicas of its stores, 1 or 3 (default: as they were)",
      wholeNumber("--replicas", 1, 3),
    );
  handle<RestoreOptions>(command, restore);
}

async function restore(invocation: Invocation<RestoreOptions>, path = ""): Promise<Exit> {
  const { options, out, target } = invocation;
  const folder = resolve(path);
  const manifest = readManifest(folder);
  if (options.space !== undefined && options.space !== manifest.space) {
    throw new UsageError(`the backup is of ${manifest.space}, and --space says ${options.space}`, {
      next: "leave --space out: a space keeps its name",
    });
  }
  const state = stateOf(options);
  demandMode(state, manifest);
  out.note("verifying the backup");
  await verifyFolder(folder);
  const at = { ...target(), space: manifest.space };
  mkdirSync(trustPaths(state).spaces, { recursive: true, mode: 0o700 });
  const lock = await takeLock(trustPaths(state).spaces);
  if (lock === undefined) throw anotherRuns(state);
  try {
    if (options.server !== undefined || livePlane(state) !== undefined) {
      report(out, manifest, await fill(invocation, at.server, folder, manifest));
      return await served(out, { ...at, auth: manifest.auth }, options.server === undefined);
    }
    const port = options.port ?? readRemembered(state)?.port ?? DEFAULT_PORT;
    const filled = await withBroker(state, port, (server) => fill(invocation, server, folder, manifest));
    writeRemembered(state, { v: 1, port, auth: readRemembered(state)?.auth ?? manifest.auth });
    report(out, manifest, filled);
    out.note(`start it with cotal up --space ${manifest.space} --state ${state}, and look with cotal doctor`);
    return Exit.Done;
  } finally {
    await lock.release();
  }
}

const Trusted = z.union([
  z.looseObject({ phase: z.literal("proved") }),
  z.looseObject({ phase: z.literal("writing"), creds: z.string(), owner: z.string() }),
]);

/** `undefined`: an earlier run has filled and proved it, and died before its daemons were told. */
async function fill(
  { options, out }: Invocation<RestoreOptions>,
  server: string,
  folder: string,
  manifest: Manifest,
): Promise<RestoreReport | undefined> {
  const { space, auth, digest } = manifest;
  const order = { state: stateOf(options), space, server, auth };
  const trusted = Trusted.parse(await runTrust(TrustCommand.Restore, { ...order, folder, digest }));
  let filled: RestoreReport | undefined;
  if (trusted.phase === "writing") {
    const credential = readCredsFile(trusted.creds);
    rmSync(trusted.creds);
    const connection = await openConnection(keeperOptions(server, credential, { kind: "bounded", attempts: 3 }));
    try {
      filled = await restoreSpace({
        nc: connection.nc,
        folder,
        manifest,
        systemOwner: trusted.owner,
        replicas: replicasOf(options, manifest),
        random: randomBytes,
        now: Date.now,
        onStep: (step, count) => out.note(`${step}: ${count}`),
      });
    } finally {
      await connection.close();
    }
  }
  await runTrust(TrustCommand.Restored, order);
  return filled;
}

function replicasOf({ replicas }: RestoreOptions, manifest: Manifest): 1 | 3 {
  if (replicas === undefined) return manifest.replicas;
  if (replicas === 1 || replicas === 3) return replicas;
  throw new UsageError("--replicas takes 1 or 3");
}

/** A state keeps the mode that it was made with, and its broker is open or has accounts. */
function demandMode(state: string, { auth }: Manifest): void {
  const made = readRemembered(state)?.auth;
  if (made === undefined || made === auth || made === "user") return;
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `${state} was made with auth mode ${made}, and the backup is of a space with ${auth}`,
    {
      outcome: Outcome.NotExecuted,
      next: "name a new state folder with --state DIR",
    },
  );
}

function anotherRuns(state: string): CotalError {
  return new CotalError(ErrorCode.AlreadyExists, `another restore runs on ${state}`, {
    outcome: Outcome.NotExecuted,
    next: "wait until it has ended",
  });
}

/** The daemons take it up; then everything is looked at once more, from outside. */
async function served(out: Output, at: Target, local: boolean): Promise<Exit> {
  await takenUp(at).catch((thrown: unknown) => {
    throw notYetServed(at.space, thrown);
  });
  const { findings } = await diagnose(at, local);
  for (const finding of findings) printFinding(out, finding);
  return findings.length === 0 ? Exit.Done : Exit.Findings;
}

/** It is whole all the same: nothing of it has to be done again. */
function notYetServed(space: string, thrown: unknown): CotalError {
  const { code, message } = toCotalError(thrown);
  return new CotalError(code, `${space} is restored and proved, and is not seen served from here: ${message}`, {
    next: "start its daemons, then look with cotal doctor from beside its exchange; do not restore again",
  });
}

function report(out: Output, { space, auth, ended, digest }: Manifest, filled: RestoreReport | undefined): void {
  const { messages = {}, ...counts } = filled ?? {};
  const rows = Object.entries({ ...messages, ...counts }).map(([name, count]): [string, string] => [
    WORDS[name] ?? name,
    String(count),
  ]);
  out.item(
    { kind: "restored", space, digest, takenAt: new Date(ended).toISOString(), ...filled },
    ...table([["restored", space], ["as of", new Date(ended).toISOString()], ...rows]),
  );
  out.note(
    `no credential of before works; ${auth === "user" ? "people sign in again, and managed agents are given new secrets" : "mint everybody again: the first mint of a name goes on with its inbox"}`,
    "what was revoked after the backup is not known to it: revoke it again; assign the names of endpoints again",
  );
}

const WORDS: Readonly<Record<string, string>> = {
  copiesLeft: "copies left out",
  reserved: "lifecycles ended",
  enrolled: "enrolled anew",
};
