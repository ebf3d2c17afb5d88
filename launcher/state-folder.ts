/**
 * Where the embedded space keeps what it runs on.
 *
 * ```
 * <state>/broker/     configuration, accounts and store of the broker
 * <state>/trust/, spaces/   see shared/trust/folder.ts
 * <state>/plane.json  what this state was made as: port and auth mode, remembered from the first up
 * <state>/run/        the record of the running plane
 * <state>/logs/       one bounded log per child
 * ```
 *
 * Invariant: nothing here is a secret but the faces in `run/`, which are 0600; the folder is 0700.
 */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { SPACE_TOKEN } from "../shared/protocol/base/grammar.ts";
import { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { DEV_ISSUER_FILES } from "../shared/trust/dev-issuer.ts";
import { trustPaths, writePrivate } from "../shared/trust/folder.ts";
import { sweepStaged } from "../shared/trust/staged.ts";

export const DEFAULT_PORT = 4222;
export const LOOPBACK = "127.0.0.1";

type Env = Readonly<Record<string, string | undefined>>;

/** `COTAL_STATE`, else `$XDG_STATE_HOME/cotal`, else `~/.local/state/cotal`. Empty is unset. */
export function defaultState(env: Env): string {
  const named = env["COTAL_STATE"];
  if (named !== undefined && named !== "") return resolve(named);
  const base = env["XDG_STATE_HOME"];
  return base !== undefined && base !== "" ? join(base, "cotal") : join(homedir(), ".local", "state", "cotal");
}

export function planePaths(state: string) {
  const log = (name: string) => join(state, "logs", `${name}.log`);
  return {
    run: join(state, "run"),
    record: join(state, "run", "plane.json"),
    logs: join(state, "logs"),
    log,
    /** Where the exchange of a space is, and its capability: a secret of one start. */
    face: (space: string) => join(state, "run", `exchange-${space}.json`),
    remembered: join(state, "plane.json"),
  } as const;
}

/** What lies in a state folder, or on the disk of its own that it is. */
const OWN_ENTRIES: ReadonlySet<string> = new Set([
  "run",
  "logs",
  "plane.json",
  "trust",
  "spaces",
  "broker",
  "lost+found",
]);

/**
 * Creates the folder, for its owner alone. Throws `failed-precondition` where that is refused, and
 * for a folder that holds something else: closing a shared one to others would be a bad surprise.
 */
export function prepareState(state: string): void {
  const { run, logs } = planePaths(state);
  try {
    if (!isOurs(state)) throw foreign(state);
    for (const folder of [state, run, logs]) {
      makeFolder(folder);
      chmodSync(folder, 0o700);
    }
  } catch (cause) {
    if (cause instanceof CotalError) throw cause;
    throw new CotalError(ErrorCode.FailedPrecondition, `the state folder ${state} can't be written`, {
      outcome: Outcome.NotExecuted,
      next: "name a folder that you own with --state DIR or COTAL_STATE",
      cause,
    });
  }
}

/**
 * Empty, made here before, or with our names only: one of them alone proves nothing (`/` has a `run`).
 */
function isOurs(state: string): boolean {
  const entries = existsSync(state) ? readdirSync(state) : [];
  const has = (name: string): boolean => entries.includes(name);
  const made = has("broker") && (has("plane.json") || has("trust")) && dirname(state) !== state;
  return made || entries.every((entry) => OWN_ENTRIES.has(entry));
}

/** As `mkdir -p`. Node's own never returns where the system says that a parent is not there (`/proc`). */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (!existsSync(path)) throw error;
  }
}

function foreign(state: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `${state} holds other things and is no state folder`, {
    outcome: Outcome.NotExecuted,
    next: "name an empty or a new folder with --state DIR or COTAL_STATE",
  });
}

export const Remembered = z.looseObject({
  v: z.literal(1),
  port: z.number().int().min(1).max(65_535),
  auth: AuthMode,
  /** Spaces of an open broker: nothing else names them. */
  spaces: z.array(z.string().regex(SPACE_TOKEN)).optional(),
});
export type Remembered = z.infer<typeof Remembered>;

/** What an earlier `up` of this state settled; `undefined` for a fresh folder. */
export function readRemembered(state: string): Remembered | undefined {
  const path = planePaths(state).remembered;
  const text = readIfThere(path);
  if (text === undefined) return undefined;
  const parsed = Remembered.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not parse`, {
    next: 'restore it, for example {"v":1,"port":4222,"auth":"user"}, with the mode this state was made with',
  });
}

export function writeRemembered(state: string, remembered: Remembered): void {
  writePrivate(planePaths(state).remembered, JSON.stringify(remembered));
}

/**
 * Removes what a killed launcher, or a daemon of it, left of files that it was writing. For whoever holds the folder, before it
 * starts anything: whatever else writes these is its child.
 */
export function sweepState(state: string): void {
  const { run, remembered } = planePaths(state);
  sweepStaged(run, () => true);
  sweepStaged(state, (file) => file === basename(remembered));
  const { auth } = trustPaths(state);
  for (const space of knownSpaces(state)) sweepStaged(auth(space), (file) => DEV_ISSUER_FILES.has(file));
}

/** Spaces whose keys lie in this folder; one that was only named by a command is none. */
export function knownSpaces(state: string): string[] {
  try {
    return readdirSync(trustPaths(state).spaces).filter(
      (name) => SPACE_TOKEN.test(name) && existsSync(trustPaths(state).spaceTrust(name)),
    );
  } catch {
    // No space has been made yet.
    return [];
  }
}

/** The text of a file, or `undefined` if there is none; any other fault is thrown. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

/** Parsed JSON, `undefined` for anything else. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
