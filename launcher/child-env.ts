/**
 * What a child process inherits of our environment.
 *
 * Invariants: a `COTAL_*` variable of the person's shell is meant for the CLI and never reaches a
 * daemon by accident; secrets are named by path and never handed over. The compile cache halves the
 * start of each child and lies beside the code, where only its owner writes.
 */
import { join } from "node:path";

const CACHE = join(import.meta.dirname, "..", "node_modules", ".cache", "cotal");

/** The cache folder for compiled sources; a folder that can't be written only means no cache. */
export function compileCache(): string {
  return process.env["NODE_COMPILE_CACHE"] ?? CACHE;
}

/** Our environment without `COTAL_*` and debugger flags, with what the child is given. */
export function childEnv(given: Readonly<Record<string, string>> = {}): Record<string, string> {
  const kept = Object.entries(process.env).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined && !entry[0].startsWith("COTAL_") && entry[0] !== "NODE_OPTIONS",
  );
  return { ...Object.fromEntries(kept), NODE_COMPILE_CACHE: compileCache(), ...given };
}
