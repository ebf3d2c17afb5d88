/** The provisioner's spaces: what is counted, logged and opened for each. */
import { ownUsers } from "../../shared/broker/own-credential.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { countServed } from "../../shared/daemon/served.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { ServedEvent } from "../../shared/serve/serve.ts";
import type { provisionerConfig } from "./config.ts";
import { spacesWithKeys } from "./keys.ts";
import { openSpace } from "./open-space.ts";
import { recordSayings } from "./say-records.ts";

type Values = ReturnType<typeof provisionerConfig.read>["values"];

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log, metrics } = context;
  const count = countServed(metrics);
  const records = recordSayings(context);
  const users = ownUsers();
  if (values.mode === "open") log.warn("this broker is open: nobody's identity is proved, and anybody may do anything");
  return keep({
    context,
    spaces: values.spaces,
    ...(values.mode === "accounts" ? { discover: () => spacesWithKeys(values.keys) } : {}),
    open: async (hooks) => {
      const { space } = hooks;
      const served = await openSpace({
        ...hooks,
        ...records(space),
        servers: values.servers,
        mode: values.mode,
        keysPattern: values.keys,
        users,
        replicas: values.replicas === 3 ? 3 : 1,
        serveSeconds: values.serveSeconds,
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        onServed: (event: ServedEvent) => {
          count(space, event);
          log.debug("served", { space, ...event });
        },
      });
      for (const { stream, field } of served.upgraded) {
        log.warn("a store of an earlier version was brought up to date", { space, stream, field });
      }
      for (const drift of served.drift) log.error("a store has another shape than the contract", { space, ...drift });
      for (const passed of served.passedOver) log.warn("a credential got no row in the ledger", { space, ...passed });
      const { principal, epoch, created } = served;
      log.info("the space is served", { space, principal, epoch, created });
      return served;
    },
  });
}
