/** The delivery service's spaces: what is counted, logged and opened for each. */
import { hostname } from "node:os";
import { ownUsers } from "../../shared/broker/own-credential.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { deliveryConfig } from "./config.ts";
import { spacesWithDeliveryKeys } from "./keys.ts";
import type { GroupEvent } from "./fanout/groups.ts";
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
  const copies = metrics.counter({
    name: `${metrics.prefix}copies_total`,
    help: "Copies written to members.",
    labels: ["space", "group"],
  });
  const position = metrics.gauge({
    name: `${metrics.prefix}fanout_position`,
    help: "The last post of which every member has its copy.",
    labels: ["space", "group"],
  });
  const held = metrics.gauge({
    name: `${metrics.prefix}group_held`,
    help: "1 where this process writes the copies of the member group, else 0. The sum over all processes is 1.",
    labels: ["space", "group"],
  });
  const fanout = metrics.counter({
    name: `${metrics.prefix}fanout_events_total`,
    help: "What else the fan-out met: groups claimed, failures, posts lost before they were read, copies taken back.",
    labels: ["space", "group", "state"],
  });
  const onGroup = (space: string, event: GroupEvent): void => {
    const group = String(event.group);
    if (event.type === "copies") return copies.inc({ space, group }, event.count);
    if (event.type === "position") return position.set({ space, group }, event.position);
    if (event.type === "held" || event.type === "lost") held.set({ space, group }, event.type === "held" ? 1 : 0);
    fanout.inc({ space, group, state: event.type }, event.type === "gap" || event.type === "swept" ? event.count : 1);
    if (event.type === "failed") {
      const { code, message } = event.error;
      log.warn("a member group is begun anew", { space, group, code, why: message });
    } else if (event.type === "gap") {
      log.warn("posts had left the stream before their copies were written", { space, ...event });
    } else log.debug("fan-out", { space, ...event });
  };
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
        ...(values.instance === "host" ? { host: hostname() } : {}),
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
        onPlane: () => dropped.inc({ space }),
        onGroup: (event) => onGroup(space, event),
        onEvictorEnd: (at, now) => {
          end.set({ space }, at);
          const isSoon = at - now < SOON_SECONDS;
          if (isSoon && !isTold) log.warn("the credential of the system account ends soon", { space, at, next: RENEW });
          isTold = isSoon;
        },
      });
      const { principal, instanceId, epoch } = served;
      log.info("the space is served", { space, principal, instanceId, epoch });
      return served;
    },
  });
}

const RENEW = "run cotal up, or cotal space add, where the space was made: they renew it";
