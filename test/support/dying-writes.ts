/**
 * Loaded before a program (`--import`): kills it right after its durable write number `COTAL_TEST_WRITES`: a file
 * or link that was made, a file that was replaced. A file that is found made is not written, so a program that is run
 * again after each death gets further each time.
 */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

let left = Number(process.env["COTAL_TEST_WRITES"]);

for (const name of ["linkSync", "renameSync", "symlinkSync"] as const) {
  const real = fs[name] as (...given: unknown[]) => void;
  fs[name] = (...given: unknown[]): void => {
    real(...given);
    left -= 1;
    if (left === 0) process.kill(process.pid, "SIGKILL");
  };
}
syncBuiltinESMExports();
