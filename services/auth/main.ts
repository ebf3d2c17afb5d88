/**
 * The auth service: lets people and agents in (edge), and keeps the ledger of who may come (plane).
 * Composition only: configuration, spaces, drain.
 */
import { runDaemon } from "../../shared/daemon/lifecycle.ts";
import { authConfig } from "./config.ts";
import { keepSpaces } from "./spaces.ts";

await runDaemon({
  name: "auth",
  config: authConfig,
  start: (context) => {
    const spaces = keepSpaces(context);
    return Promise.resolve({ stopIntake: spaces.stopIntake, drain: () => undefined });
  },
});
