/**
 * Loaded before a program (`--import`): strikes it at its durable write number `COTAL_TEST_WRITES`: a file or link that is
 * made, a file that is replaced. A file that is found made is not written, so a program that is run again after each
 * death gets further each time. `COTAL_TEST_STRIKE`: killed `after` that write, killed `before` it, or `stopped` before it.
 */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

let left = Number(process.env["COTAL_TEST_WRITES"]);
const strike = process.env["COTAL_TEST_STRIKE"] ?? "after";

for (const name of ["linkSync", "renameSync", "symlinkSync"] as const) {
  const real = fs[name] as (...given: unknown[]) => void;
  fs[name] = (...given: unknown[]): void => {
    left -= 1;
    if (left === 0 && strike !== "after") process.kill(process.pid, strike === "stopped" ? "SIGSTOP" : "SIGKILL");
    real(...given);
    if (left === 0 && strike === "after") process.kill(process.pid, "SIGKILL");
  };
}
syncBuiltinESMExports();
