/**
 * Keeping spaces: one supervised loop for each, so one space that fails never takes another along.
 *
 * What it is to serve a space is the daemon's own business (`open`); here is when it is opened, watched,
 * renewed and given back.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ConnectOptions, ConnectionStatus } from "../broker/connect.ts";
import { CotalError, ErrorCode, toCotalError } from "../protocol/base/errors.ts";
import type { Check, Health } from "./health.ts";
import type { Loop, LoopEnd } from "./keep.ts";
import type { Context } from "./lifecycle.ts";
import type { Fields, Log } from "./log.ts";

/** In a list of spaces: takes up whatever space is added. */
export const EVERY_SPACE = "*";

/** How soon a space that was added is taken up. */
const SCAN_MS = 500;
const RENEW_EVERY = { ms: 60_000, againMs: 5_000 };

const NO_SPACE = "cotal up, or cotal space add, makes one; check the folder of this daemon's keys";

/** A space that is served. */
export type KeptSpace = {
  /** Resolves with the cause when it can't be served any more. */
  readonly broken: Promise<unknown>;
  /** Called again and again while it is served. */
  readonly renew: () => Promise<void>;
  readonly stopIntake: () => Promise<void>;
  readonly close: () => Promise<void>;
};

export type SpaceHooks = {
  readonly space: string;
  /** Aborted when the space is to end: whatever `open` waits for ends too. */
  readonly signal: AbortSignal;
  /** Each connection of the space tells what becomes of it; a health check shows it. */
  readonly onStatus: (connection: string, status: ConnectionStatus) => void;
  /** What an opening waits for, and what to do if that does not come. Told when the wait begins. */
  readonly waiting: (what: string, next: string) => void;
};

/** A connection of that space as every daemon has them: it comes back for as long as the space is held, and says how it is. */
export function lastingDial(
  service: string,
  {
    servers,
    space,
    signal,
    onStatus,
  }: Pick<SpaceHooks, "space" | "signal" | "onStatus"> & Pick<ConnectOptions, "servers">,
  name: string,
) {
  return {
    servers,
    name: `${service} ${space} ${name}`,
    reconnect: { kind: "endless", capMs: 5000 },
    signal,
    onStatus: (status: ConnectionStatus) => onStatus(name, status),
  } as const;
}

export type KeepSpacesOptions<Values> = {
  readonly context: Pick<Context<Values>, "keep" | "health" | "log">;
  readonly spaces: readonly string[];
  /** The spaces that there are now, for `*`; left out where none can be added. */
  readonly discover?: () => readonly string[];
  readonly open: (hooks: SpaceHooks) => Promise<KeptSpace>;
  /** Milliseconds from one renewal to the next, and to the next after one that failed. */
  readonly renewEvery?: { readonly ms: number; readonly againMs: number };
};

export type Spaces = { readonly stopIntake: () => Promise<void> };

export function keepSpaces<Values>(options: KeepSpacesOptions<Values>): Spaces {
  const { context, spaces, discover } = options;
  const open = new Map<string, KeptSpace>();
  const known = new Set<string>();
  const take = (space: string): void => {
    if (known.has(space)) return;
    known.add(space);
    context.keep(`space:${space}`, (loop) => runSpace(options, space, loop, open));
  };
  if (spaces.includes(EVERY_SPACE) && discover !== undefined) {
    let isSaid = false;
    context.keep("spaces", async (loop): Promise<LoopEnd> => {
      while (!loop.stopping.aborted) {
        for (const space of discover()) take(space);
        loop.ok(`${known.size} spaces`);
        if (known.size === 0 && !isSaid) context.log.warn("there is no space with keys yet", { next: NO_SPACE });
        isSaid = true;
        await pause(SCAN_MS, loop.stopping);
      }
      return { kind: "done" };
    });
  }
  for (const space of spaces) if (space !== EVERY_SPACE) take(space);
  return {
    stopIntake: async () => {
      await Promise.all([...open.values()].map((space) => space.stopIntake()));
    },
  };
}

async function runSpace<Values>(
  { context, open: openSpace, renewEvery = RENEW_EVERY }: KeepSpacesOptions<Values>,
  space: string,
  loop: Loop,
  open: Map<string, KeptSpace>,
): Promise<LoopEnd> {
  const { health, log } = context;
  const connections = watchConnections(space, health, log);
  try {
    const served = await openSpace({
      space,
      signal: loop.stopping,
      onStatus: connections.told,
      waiting: (what, next) => {
        loop.failing(what, next);
        log.info("the space waits", { space, what, next });
      },
    });
    open.set(space, served);
    try {
      loop.ok();
      return await untilEnd(served, loop, renewEvery, log.child({ space }));
    } finally {
      open.delete(space);
      try {
        await served.stopIntake();
      } finally {
        await served.close();
      }
    }
  } catch (thrown) {
    return { kind: "retry", cause: ofKeys(thrown) };
  } finally {
    // Also of an opening that failed: the next one brings its own.
    connections.end();
  }
}

/** A daemon mints its own credentials: one that is refused means keys of another broker. */
function ofKeys(cause: unknown): unknown {
  if (!(cause instanceof CotalError) || cause.code !== ErrorCode.Unauthenticated) return cause;
  return new CotalError(cause.code, cause.message, {
    next:
      "the keys of this daemon and the broker's accounts do not belong together: check the folder of its keys and the " +
      "broker's address; cotal up, or cotal space add, tells the broker again",
    cause,
  });
}

async function untilEnd(
  served: KeptSpace,
  loop: Loop,
  { ms, againMs }: typeof RENEW_EVERY,
  log: Log,
): Promise<LoopEnd> {
  const broken = served.broken.then((cause): LoopEnd => ({
    kind: "retry",
    cause: ofKeys(cause) ?? new Error("a connection closed"),
  }));
  // The first comes soon: it also looks at what an opening does not.
  let waitMs = againMs;
  let failed: string | undefined;
  for (;;) {
    const end = await Promise.race([broken, pause(waitMs, loop.stopping)]);
    if (end !== undefined) return end;
    if (loop.stopping.aborted) return { kind: "done" };
    const cause = await renew(served, loop);
    waitMs = cause === undefined ? ms : againMs;
    // Told once while it lasts the same; what may change from try to try is a number.
    const words = cause?.message.replaceAll(/\d+/g, "");
    if (cause !== undefined && words !== failed) log.warn("a renewal failed; it is tried again", { err: cause });
    failed = words;
  }
}

/** What only silence caused has nothing to look at but the silent. */
const SILENT: ReadonlySet<ErrorCode> = new Set([ErrorCode.DeadlineExceeded, ErrorCode.Unavailable]);

/** A renewal that fails is tried again soon: half of a credential's life is left for it. */
async function renew(served: KeptSpace, loop: Loop): Promise<CotalError | undefined> {
  try {
    await served.renew();
    loop.ok();
    return undefined;
  } catch (thrown) {
    const error = toCotalError(thrown);
    const { code, message, next } = error;
    const advice = next === undefined || SILENT.has(code) ? "read the log of this process and of the broker" : next;
    loop.failing(`a renewal failed: ${message}`, `it is tried again by itself; if it stays, ${advice}`);
    return error;
  }
}

type Connections = {
  readonly told: (connection: string, status: ConnectionStatus) => void;
  /** Their checks are gone: the space is closed, or was never opened. */
  readonly end: () => void;
};

/** Shows and logs what becomes of a space's connections: a wait is logged when it begins, not at each try. */
function watchConnections(space: string, health: Health, log: Log): Connections {
  const checks = new Map<string, Check>();
  const waiting = new Set<string>();
  const end = (name: string): void => {
    checks.get(name)?.remove();
    checks.delete(name);
  };
  return {
    told: (connection, status) => {
      const name = `connection:${space}.${connection}`;
      // Closed by us: a connection that was for one task is missed by nobody.
      if (status.type === "closed" && status.error === undefined) end(name);
      else {
        const check = checks.get(name) ?? health.check(name);
        checks.set(name, check);
        showStatus(check, status);
      }
      if (status.type === "retrying") {
        if (!waiting.has(name)) log.warn("a connection waits for the broker", { space, connection, err: status.error });
        waiting.add(name);
        return;
      }
      if (status.type === "up") waiting.delete(name);
      logStatus(log, { space, connection }, status);
    },
    end: () => {
      for (const name of checks.keys()) end(name);
    },
  };
}

function logStatus(log: Log, fields: Fields, status: ConnectionStatus): void {
  switch (status.type) {
    case "refused":
      return log.warn("the broker refused something", { ...fields, err: status.error });
    case "slow":
      return;
    default:
      log.info("connection", { ...fields, status: status.type });
  }
}

const COMES_BACK = "check the broker; the connection comes back by itself";

function showStatus(check: Check, status: ConnectionStatus): void {
  switch (status.type) {
    case "up":
      check.ok();
      break;
    case "down":
      check.fail("the broker is not reached", COMES_BACK);
      break;
    case "retrying":
      check.fail(status.error?.message ?? "the broker is not reached", status.error?.next ?? COMES_BACK);
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
