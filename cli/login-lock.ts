/**
 * One process at a time changes a sign-in: of two that renewed it at once, the provider would take the
 * second for a thief of the first's refresh token, and end both (RFC 9700, 4.14.2).
 *
 * Everybody who wants the lock writes a file of a name of its own, and then looks whether there is
 * another one: who sees one draws back. Of two, the later writer sees the earlier, so two never hold it;
 * that both may draw back is settled by waits of random length.
 *
 * Invariants
 * 1. A file names its process (field case 34); one whose process is gone is removed by whoever sees it.
 *    Names are never used again, so nobody removes a living one by mistake.
 * 2. Nobody waits without end.
 */
import { randomBytes } from "node:crypto";
import { readFileSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { writePrivate } from "../shared/trust/folder.ts";
import { ProcessIdentity, isAlive, ownIdentity } from "../launcher/process-identity.ts";
import { keeping } from "./keeping.ts";
import { type LoginPlace, loginPath } from "./login-file.ts";

/** Longer than the holder's own time limits together. */
const WAIT_MS = 30_000;
const LOOK_MS = 20;
const LOOK_SPREAD_MS = 80;
const NAME = /^login\.lock\.[0-9a-f]{16}$/;

/** Runs while no other process, and no other call, holds the sign-in of this place. */
export async function holdingLogin<T>(place: LoginPlace, run: () => Promise<T>, waitMs = WAIT_MS): Promise<T> {
  const folder = dirname(loginPath(place));
  const deadline = performance.now() + waitMs;
  for (;;) {
    const mine = tryHold(place, folder);
    if (mine !== undefined) {
      try {
        return await run();
      } finally {
        rmSync(mine, { force: true });
      }
    }
    if (performance.now() > deadline) throw busy(place);
    await sleep(LOOK_MS + Math.random() * LOOK_SPREAD_MS);
  }
}

/** The file that holds the lock; `undefined` if somebody else has it, or wants it too. */
function tryHold(place: LoginPlace, folder: string): string | undefined {
  if (hasOther(folder)) return undefined;
  const mine = join(folder, `login.lock.${randomBytes(8).toString("hex")}`);
  keeping(place, () => writePrivate(mine, JSON.stringify(ownIdentity())));
  if (!hasOther(folder, mine)) return mine;
  rmSync(mine, { force: true });
  return undefined;
}

function hasOther(folder: string, mine = ""): boolean {
  return entries(folder).some((name) => NAME.test(name) && name !== basename(mine) && isHeld(join(folder, name)));
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Is its process there? One that is gone leaves nothing behind. */
function isHeld(path: string): boolean {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
  const holder = ProcessIdentity.safeParse(parsed(text)).data;
  if (holder !== undefined && isAlive(holder)) return true;
  rmSync(path, { force: true });
  return false;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

function busy({ space }: LoginPlace): CotalError {
  return new CotalError(ErrorCode.Unavailable, `another command has the sign-in to ${space} in hand and does not end`, {
    outcome: Outcome.NotExecuted,
    next: "try again; if it stays, end the cotal command that hangs",
  });
}
