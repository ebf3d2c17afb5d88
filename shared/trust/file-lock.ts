/**
 * A lock that is a file: held by one process of all that see the file, in whichever container of the machine they run.
 *
 * The kernel holds it (a record lock on the inode, taken by the SQLite that Node brings), so it is gone with its holder
 * however that ends, and nobody judges by a pid or a time whether it is stale. A name in the kernel would not do: an
 * abstract socket is seen in its own network namespace alone, and a pid in its own pid namespace.
 *
 * Invariants
 * 1. Nothing is ever written into the file, and it is never removed: two would hold a lock of one name each.
 * 2. A file system that knows no locks is a refusal, and not a lock.
 */
import { closeSync, existsSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

/** SQLite's word for: another holds it. */
const SQLITE_BUSY = 5;
const POLL_MS = 25;

/** What is waited for and how long; `held`: what is thrown then. */
export type LockOptions = { readonly path: string; readonly waitMs: number; readonly held: () => CotalError };

/** Runs alone among all who run under this lock. */
export async function alone<T>({ path, waitMs, held }: LockOptions, run: () => Promise<T> | T): Promise<T> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    const release = tryLock(path);
    if (release !== undefined) {
      try {
        return await run();
      } finally {
        release();
      }
    }
    if (performance.now() > deadline) throw held();
    await sleep(POLL_MS);
  }
}

/** The same for what does not wait while it runs: nothing else of this process goes on meanwhile. */
export function aloneSync<T>({ path, waitMs, held }: LockOptions, run: () => T): T {
  const release = tryLock(path, waitMs);
  if (release === undefined) throw held();
  try {
    return run();
  } finally {
    release();
  }
}

/** Those that this process holds: one that nobody refers to would be collected, and its lock let go. */
const holding = new Set<DatabaseSync>();

/** Lets go of it again; `undefined` if another holds it, still after `waitMs`. */
function tryLock(path: string, waitMs = 0): (() => void) | undefined {
  let file: DatabaseSync | undefined;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    // One that is there is not opened: to close it would let go of what this process holds on it.
    if (!existsSync(path)) closeSync(openSync(path, "a", 0o600));
    file = new DatabaseSync(path, { timeout: waitMs });
    // No journal beside the file: there is nothing to undo.
    file.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (cause) {
    file?.close();
    if (cause instanceof Error && "errcode" in cause && cause.errcode === SQLITE_BUSY) return undefined;
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} can't be locked`, {
      outcome: Outcome.NotExecuted,
      next: "keep the folder on a file system that has locks, and writable for this user",
      cause,
    });
  }
  const held = file;
  holding.add(held);
  return () => {
    holding.delete(held);
    held.close();
  };
}
