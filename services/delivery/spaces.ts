/** The delivery service's spaces: what is counted, logged and opened for each. */
import { ownUsers } from "../../shared/broker/own-credential.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { countServed } from "../../shared/daemon/served.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { deliveryConfig } from "./config.ts";
import { spacesWithDeliveryKeys } from "./keys.ts";
import { openSpace } from "./open-space.ts";
import { anycastSayings } from "./say-anycast.ts";
import { groupSayings } from "./say-groups.ts";

type Values = ReturnType<typeof deliveryConfig.read>["values"];

/** An end of the system-account credential is told when less than this is left. */
const SOON_SECONDS = 7 * 86_400;

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log, metrics } = context;
  const count = countServed(metrics);
  const looks = metrics.counter({
    name: `${metrics.prefix}connection_looks_total`,
    help: "Looks at every connection of the space, by whether they were complete.",
    labels: ["space", "result"],
  });
  const kicked = metrics.counter({
    name: `${metrics.prefix}connections_closed_total`,
    help: "Connections that the broker has ended at this daemon's word.",
    labels: ["space"],
  });
  const end = metrics.gauge({
    name: `${metrics.prefix}evictor_end_seconds`,
    help: "When the credential of the system account ends, in Unix time.",
    labels: ["space"],
  });
  const dropped = metrics.counter({
    name: `${metrics.prefix}liveness_dropped_total`,
    help: "Questions about the plane's liveness whose reply target was none of their own.",
    labels: ["space"],
  });
  const onAnycast = anycastSayings(context);
  const onGroup = groupSayings(context);
  const users = ownUsers();
  return keep({
    context,
    spaces: values.spaces,
    ...(values.mode === "accounts" ? { discover: () => spacesWithDeliveryKeys(values.keys) } : {}),
    open: async (hooks) => {
      const { space } = hooks;
      let isTold = false;
      const opened = await openSpace({
        ...hooks,
        servers: values.servers,
        mode: values.mode,
        keysPattern: values.keys,
        users,
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        onServed: (event) => {
          count(space, event);
          log.debug("served", { space, ...event });
        },
        onLook: (gap) => {
          looks.inc({ space, result: gap === undefined ? "complete" : "partial" });
          if (gap !== undefined) log.warn("not every connection could be seen", { space, why: gap });
        },
        onKicked: ({ principal, found, closed }) => {
          kicked.inc({ space }, closed);
          log.info("connections were ended", { space, principal, found, closed });
        },
        onAnycast: (event) => onAnycast(space, event),
        onPlane: () => dropped.inc({ space }),
        onGroup: (event) => onGroup(space, event),
        onEvictorEnd: (at, now) => {
          end.set({ space }, at);
          const isSoon = at - now < SOON_SECONDS;
          if (isSoon && !isTold) log.warn("the credential of the system account ends soon", { space, at, next: RENEW });
          isTold = isSoon;
        },
      });
      const { principal, epoch } = opened;
      log.info("the space is served", { space, principal, epoch });
      return opened;
    },
  });
}

const RENEW = "run cotal up, or cotal space add, where the space was made: they renew it";
