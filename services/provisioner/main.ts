/**
 * The provisioner: space setup, static minting, limits and settings, and the first mediated reads.
 * Composition only: configuration, spaces, drain.
 */
import { runDaemon } from "../../shared/daemon/lifecycle.ts";
import { provisionerConfig } from "./config.ts";
import { keepSpaces } from "./spaces.ts";

await runDaemon({
  name: "provisioner",
  config: provisionerConfig,
  start: (context) => {
    const spaces = keepSpaces(context);
    return Promise.resolve({ stopIntake: spaces.stopIntake, drain: () => undefined });
  },
});
