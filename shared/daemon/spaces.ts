/**
 * Keeping spaces: one supervised loop for each, so one space that fails never takes another along.
 *
 * What it is to serve a space is the daemon's own business (`open`); here is when it is opened, watched,
 * renewed and given back.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { ConnectionStatus } from "../broker/connect.ts";
import { toCotalError } from "../protocol/base/errors.ts";
import type { Check } from "./health.ts";
import type { Loop, LoopEnd } from "./keep.ts";
import type { Context } from "./lifecycle.ts";

/** In a list of spaces: takes up whatever space is added. */
export const EVERY_SPACE = "*";

/** How soon a space that was added is taken up. */
const SCAN_MS = 500;
const RENEW_MS = 60_000;

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
};

export type KeepSpacesOptions<Values> = {
  readonly context: Pick<Context<Values>, "keep" | "health" | "log">;
  readonly spaces: readonly string[];
  /** The spaces that there are now, for `*`; left out where none can be added. */
  readonly discover?: () => readonly string[];
  readonly open: (hooks: SpaceHooks) => Promise<KeptSpace>;
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
    context.keep("spaces", async (loop): Promise<LoopEnd> => {
      while (!loop.stopping.aborted) {
        for (const space of discover()) take(space);
        loop.ok(`${known.size} spaces`);
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
  { context, open: openSpace }: KeepSpacesOptions<Values>,
  space: string,
  loop: Loop,
  open: Map<string, KeptSpace>,
): Promise<LoopEnd> {
  const { health, log } = context;
  const checks = new Map<string, Check>();
  const served = await openSpace({
    space,
    signal: loop.stopping,
    onStatus: (connection, status) => {
      const name = `connection:${space}.${connection}`;
      const check = checks.get(name) ?? health.check(name);
      checks.set(name, check);
      if (status.type === "closed" && status.error === undefined) {
        // Closed by us: a connection that was for one task is missed by nobody.
        check.remove();
        checks.delete(name);
      } else showStatus(check, status);
      if (status.type === "refused") log.warn("the broker refused something", { space, connection, err: status.error });
      else if (status.type !== "slow") log.info("connection", { space, connection, status: status.type });
    },
  });
  open.set(space, served);
  try {
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

async function untilEnd(served: KeptSpace, loop: Loop): Promise<LoopEnd> {
  const broken = served.broken.then((cause): LoopEnd => ({
    kind: "retry",
    cause: cause ?? new Error("a connection closed"),
  }));
  for (;;) {
    const end = await Promise.race([broken, pause(RENEW_MS, loop.stopping)]);
    if (end !== undefined) return end;
    if (loop.stopping.aborted) return { kind: "done" };
    await renew(served, loop);
  }
}

/** A renewal that fails is tried again at the next look: half of a credential's life is left for it. */
async function renew(served: KeptSpace, loop: Loop): Promise<void> {
  try {
    await served.renew();
    loop.ok();
  } catch (thrown) {
    const { message, next = "read the log of this process; it is tried again by itself" } = toCotalError(thrown);
    loop.failing(`a renewal failed: ${message}`, next);
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
