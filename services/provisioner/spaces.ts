/**
 * Keeping spaces: one supervised loop for each, so one space that fails never takes another along.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ConnectionStatus } from "../../shared/broker/connect.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { Check } from "../../shared/daemon/health.ts";
import type { Loop, LoopEnd } from "../../shared/daemon/keep.ts";
import type { CounterMetric, HistogramMetric } from "../../shared/daemon/metrics.ts";
import type { ServedEvent } from "../../shared/serve/serve.ts";
import { EVERY_SPACE, type provisionerConfig } from "./config.ts";
import { spacesWithKeys } from "./keys.ts";
import { type OpenSpace, openSpace } from "./open-space.ts";

type Values = ReturnType<typeof provisionerConfig.read>["values"];

/** How soon a space that was added is taken up. */
const SCAN_MS = 500;
const RENEW_MS = 60_000;

export type Spaces = {
  readonly stopIntake: () => Promise<void>;
};

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log, metrics } = context;
  const open = new Map<string, OpenSpace>();
  const known = new Set<string>();
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

  const take = (space: string): void => {
    if (known.has(space)) return;
    known.add(space);
    context.keep(`space:${space}`, (loop) => runSpace({ context, space, loop, open, requests, seconds }));
  };

  if (values.spaces.includes(EVERY_SPACE) && values.mode === "accounts") {
    context.keep("spaces", async (loop): Promise<LoopEnd> => {
      while (!loop.stopping.aborted) {
        for (const space of spacesWithKeys(values.keys)) take(space);
        loop.ok(`${known.size} spaces`);
        await pause(SCAN_MS, loop.stopping);
      }
      return { kind: "done" };
    });
  }
  for (const space of values.spaces) if (space !== EVERY_SPACE) take(space);
  if (values.mode === "open") log.warn("this broker is open: nobody's identity is proved, and anybody may do anything");

  return {
    stopIntake: async () => {
      await Promise.all([...open.values()].map((space) => space.stopIntake()));
    },
  };
}

type Run = {
  readonly context: Context<Values>;
  readonly space: string;
  readonly loop: Loop;
  readonly open: Map<string, OpenSpace>;
  readonly requests: CounterMetric<"space" | "command" | "result">;
  readonly seconds: HistogramMetric<"space" | "command">;
};

async function runSpace({ context, space, loop, open, requests, seconds }: Run): Promise<LoopEnd> {
  const { values, log } = context;
  const checks = new Map<string, Check>();
  const onServed = (event: ServedEvent): void => {
    requests.inc({ space, command: event.command, result: event.result });
    seconds.observe({ space, command: event.command }, event.milliseconds / 1000);
    log.debug("served", { space, ...event });
  };
  const served = await openSpace({
    space,
    servers: values.servers,
    mode: values.mode,
    keysPattern: values.keys,
    replicas: values.replicas === 3 ? 3 : 1,
    concurrency: values.concurrency,
    perCaller: values.perCaller,
    onServed,
    onStatus: (connection, status) => {
      const name = `connection:${space}.${connection}`;
      const check = checks.get(name) ?? context.health.check(name);
      checks.set(name, check);
      if (status.type === "closed" && status.error === undefined) {
        // Closed by us: a connection that was for one task is missed by nobody.
        check.remove();
        checks.delete(name);
      } else showStatus(check, status);
      if (status.type === "refused") log.warn("the broker refused something", { space, connection, err: status.error });
      else if (status.type !== "slow") log.info("connection", { space, connection, status: status.type });
    },
    signal: loop.stopping,
  });
  open.set(space, served);
  try {
    for (const drift of served.drift) log.error("a store has another shape than the contract", { space, ...drift });
    for (const passed of served.passedOver) log.warn("a credential got no row in the ledger", { space, ...passed });
    log.info("the space is served", {
      space,
      principal: served.principal,
      epoch: served.epoch,
      created: served.created,
    });
    loop.ok();
    return await untilEnd(served, loop);
  } finally {
    open.delete(space);
    try {
      await served.stopIntake();
    } finally {
      await served.close();
      for (const check of checks.values()) check.remove();
    }
  }
}

async function untilEnd(served: OpenSpace, loop: Loop): Promise<LoopEnd> {
  const broken = served.broken.then((cause): LoopEnd => ({
    kind: "retry",
    cause: cause ?? new Error("a connection closed"),
  }));
  for (;;) {
    const end = await Promise.race([broken, pause(RENEW_MS, loop.stopping)]);
    if (end !== undefined) return end;
    if (loop.stopping.aborted) return { kind: "done" };
    await served.renew();
  }
}

function showStatus(check: Check, status: ConnectionStatus): void {
  switch (status.type) {
    case "up":
      check.ok();
      break;
    case "down":
    case "retrying":
      check.fail("the broker is not reached", "check the broker; the connection comes back by itself");
      break;
    case "closed":
      check.fail(status.error?.message ?? "closed", status.error?.next ?? "it is opened again after a wait");
      break;
    default:
  }
}

async function pause(ms: number, stopping: AbortSignal): Promise<undefined> {
  try {
    await sleep(ms, undefined, { signal: stopping });
  } catch (error) {
    if (!stopping.aborted) throw error;
  }
  return undefined;
}
