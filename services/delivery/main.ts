/**
 * The delivery service: for now the oracle of who is connected, and the end of that.
 * Composition only: configuration, spaces, drain.
 */
import { runDaemon } from "../../shared/daemon/lifecycle.ts";
import { deliveryConfig } from "./config.ts";
import { keepSpaces } from "./spaces.ts";

await runDaemon({
  name: "delivery",
  config: deliveryConfig,
  start: (context) => {
    const spaces = keepSpaces(context);
    return Promise.resolve({ stopIntake: spaces.stopIntake, drain: () => undefined });
  },
});
