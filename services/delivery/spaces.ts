/** The delivery service's spaces: what is counted, logged and opened for each. */
import { ownUsers } from "../../shared/broker/own-credential.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { deliveryConfig } from "./config.ts";
import { spacesWithDeliveryKeys } from "./keys.ts";
import { openSpace } from "./open-space.ts";
import { sayAnycast } from "./say-anycast.ts";

type Values = ReturnType<typeof deliveryConfig.read>["values"];

/** An end of the system-account credential is told when less than this is left. */
const SOON_SECONDS = 7 * 86_400;

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log, metrics } = context;
  const requests = metrics.counter({
    name: `${metrics.prefix}requests_total`,
    help: "Requests answered, by command and result.",
    labels: ["space", "command", "result"],
  });
  const seconds = metrics.histogram({
    name: `${metrics.prefix}request_duration_seconds`,
    help: "From a request's arrival to its answer.",
    labels: ["space", "command"],
  });
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
  const takes = metrics.counter({
    name: `${metrics.prefix}takes_total`,
    help: "Takes of requests to a role, by answer; `dropped` got none.",
    labels: ["space", "result"],
  });
  const notices = metrics.counter({
    name: `${metrics.prefix}notices_total`,
    help: "Notices to senders of requests to a role, by whether they were published.",
    labels: ["space", "result"],
  });
  const rows = metrics.gauge({
    name: `${metrics.prefix}anycast_rows`,
    help: "Records of requests to a role, as the last sweep found them.",
    labels: ["space"],
  });
  const untaken = metrics.gauge({
    name: `${metrics.prefix}untaken_deliveries`,
    help: "Deliveries of requests to a role that were held for two sweeps and not taken.",
    labels: ["space"],
  });
  const dropped = metrics.counter({
    name: `${metrics.prefix}liveness_dropped_total`,
    help: "Questions about the plane's liveness whose reply target was none of their own.",
    labels: ["space"],
  });
  const users = ownUsers();
  return keep({
    context,
    spaces: values.spaces,
    discover: () => spacesWithDeliveryKeys(values.keys),
    open: async (hooks) => {
      const { space } = hooks;
      let isTold = false;
      const served = await openSpace({
        ...hooks,
        servers: values.servers,
        keysPattern: values.keys,
        users,
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        onServed: (event) => {
          requests.inc({ space, command: event.command, result: event.result });
          seconds.observe({ space, command: event.command }, event.milliseconds / 1000);
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
        onAnycast: (event) => sayAnycast({ space, log, takes, notices, rows, untaken }, event),
        onPlane: (event) => {
          if (event.kind === "dropped") dropped.inc({ space });
          if (event.kind === "failed")
            log.warn("the lease of this plane can't be kept now", { space, error: event.cause });
          if (event.kind === "bound") log.info("this plane is served", { space });
          if (event.kind === "lost") log.info("another serves this plane now", { space });
        },
        onEvictorEnd: (at, now) => {
          end.set({ space }, at);
          const isSoon = at - now < SOON_SECONDS;
          if (isSoon && !isTold) log.warn("the credential of the system account ends soon", { space, at, next: RENEW });
          isTold = isSoon;
        },
      });
      const { principal, epoch } = served;
      log.info("the space is served", { space, principal, epoch });
      return served;
    },
  });
}

const RENEW = "run cotal up, or cotal space add, where the space was made: they renew it";
