/**
 * A file of the state folder on its way: written beside its place under a name of its own, and then put there whole.
 *
 * Invariants
 * 1. What can't be written is removed again: a full disk must not fill with it, try after try.
 * 2. What a killed writer left is removed by `sweepStaged`, and only by whoever is the one writer of those files now,
 *    by a lock: a name says nothing about whether its writer lives, and nobody guesses.
 */
import { randomBytes } from "node:crypto";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const STAGED = /^(.+)\.[0-9a-f]{12}\.tmp$/;

/** Writes the text to a new 0600 file beside the path, down to the disk, and hands back where. */
export function stage(path: string, text: string): string {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  const whole = text.endsWith("\n") ? text : `${text}\n`;
  orRemoved(temporary, () => writeFileSync(temporary, whole, { mode: 0o600, flush: true }));
  return temporary;
}

export function orRemoved(temporary: string, write: () => void): void {
  try {
    write();
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** Removes what was left on its way to files of this folder whose names are the caller's to write. A folder that is not there is swept. */
export function sweepStaged(folder: string, isOurs: (file: string) => boolean): void {
  for (const name of entries(folder)) {
    const file = STAGED.exec(name)?.[1];
    if (file !== undefined && isOurs(file)) rmSync(join(folder, name), { force: true });
  }
}

function entries(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  }
}
