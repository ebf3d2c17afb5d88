/** What a process costs: for tests that say "bounded". */
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Resident memory of a process in MiB; 0 if it is gone. */
export function residentMiB(pid: number): number {
  try {
    return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
}

/** Live heap of this process in MiB, after a collection. */
export function heapMiB(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  return process.memoryUsage().heapUsed / 2 ** 20;
}

/** Everything that was rejected and heard by nobody, from now on. */
export function unheardRejections(): { readonly seen: readonly unknown[]; readonly stop: () => void } {
  const seen: unknown[] = [];
  const keep = (cause: unknown): void => void seen.push(cause);
  process.on("unhandledRejection", keep);
  return { seen, stop: () => void process.off("unhandledRejection", keep) };
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
