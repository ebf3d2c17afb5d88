/**
 * Takes the lock of the file it is given and says so once memory was collected; keeps it until it is ended. Run with
 * `--expose-gc`.
 */
import { setImmediate as soon } from "node:timers/promises";
import { alone } from "../../shared/trust/file-lock.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";

const [path = ""] = process.argv.slice(2);
const held = (): CotalError => new CotalError(ErrorCode.Unavailable, "held");
setInterval(() => undefined, 60_000);
void alone({ path, waitMs: 60_000, held }, async () => {
  void soon().then(() => {
    globalThis.gc?.();
    process.stdout.write("held\n");
  });
  await new Promise(() => undefined);
});
