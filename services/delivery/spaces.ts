/** The delivery service's spaces: what is counted, logged and opened for each. */
import { ownUsers } from "../../shared/broker/own-credential.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { deliveryConfig } from "./config.ts";
import { spacesWithDeliveryKeys } from "./keys.ts";
import type { GroupEvent } from "./fanout/groups.ts";
import { openSpace } from "./open-space.ts";
import { sayAnycast } from "./say-anycast.ts";
import { sayFeed } from "./say-feed.ts";

type Values = ReturnType<typeof deliveryConfig.read>["values"];

/** An end of a system-account credential is told when less than this is left. */
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
    name: `${metrics.prefix}system_credential_end_seconds`,
    help: "When the first of the credentials of the system account ends, in Unix time.",
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
  const fanout = metrics.counter({
    name: `${metrics.prefix}fanout_events_total`,
    help: "What else the fan-out met: groups claimed, failures, posts lost before they were read, copies taken back.",
    labels: ["space", "group", "state"],
  });
  const onGroup = (space: string, event: GroupEvent): void => {
    const group = String(event.group);
    if (event.type === "copies") return copies.inc({ space, group }, event.count);
    if (event.type === "position") return position.set({ space, group }, event.position);
    fanout.inc({ space, group, state: event.type }, event.type === "gap" || event.type === "swept" ? event.count : 1);
    if (event.type === "failed") {
      const { code, message } = event.error;
      log.warn("a member group is begun anew", { space, group, code, why: message });
    } else if (event.type === "gap") {
      log.warn("posts had left the stream before their copies were written", { space, ...event });
    } else log.debug("fan-out", { space, ...event });
  };
  const feed = {
    log,
    looks: metrics.counter({
      name: `${metrics.prefix}membership_looks_total`,
      help: "Looks for the membership feed, by whether they covered everybody.",
      labels: ["space", "result"],
    }),
    writes: metrics.counter({
      name: `${metrics.prefix}membership_writes_total`,
      help: "Rows of the membership feed that were written or removed.",
      labels: ["space"],
    }),
    rows: metrics.gauge({
      name: `${metrics.prefix}membership_rows`,
      help: "Principals in the membership feed, where this process writes it.",
      labels: ["space"],
    }),
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
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        membershipMs: values.membershipSeconds * 1000,
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
        onFeed: sayFeed({ space, ...feed }),
        onSystemEnd: (at, now) => {
          end.set({ space }, at);
          const isSoon = at - now < SOON_SECONDS;
          if (isSoon && !isTold) log.warn("a credential of the system account ends soon", { space, at, next: RENEW });
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
