/** A process that holds the sign-in of a state folder again and again; ends with 1 if somebody else held it too. */
import { closeSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { holdingLogin } from "../../cli/login-lock.ts";

const [state = "", times = "0"] = process.argv.slice(2);
const inside = join(state, "inside");

for (let round = 0; round < Number(times); round += 1) {
  await holdingLogin({ state, space: "main" }, async () => {
    // Made by nobody else while it is there, or this throws.
    closeSync(openSync(inside, "wx"));
    await sleep(1);
    rmSync(inside);
  });
}
