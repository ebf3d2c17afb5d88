/**
 * The embedded space: the broker and the daemons as child processes of one launcher.
 *
 * ```
 * trust ─▶ broker ─▶ space ─▶ provisioner, delivery, auth ─▶ ready      stop: daemons ─▶ broker
 * ```
 *
 * The auth service runs where people sign in (auth mode user).
 *
 * Invariants
 * 1. One launcher per state folder (lock.ts). What a killed one left behind is ended first, and
 *    only after pid, start time and boot agree.
 * 2. A start that fails or is ended leaves no process behind.
 * 3. A stop is over within ten seconds: each child has its share, and then the axe.
 * 4. Keys are read by the trust program alone; nothing here opens one.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../shared/protocol/base/errors.ts";
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { spaceToken } from "../shared/protocol/base/subjects.ts";
import { keptAuthMode } from "../shared/trust/space-file.ts";
import { type BrokerBinary, brokerVersion, findBroker } from "./broker-binary.ts";
import { assertPortFree, launchBroker } from "./broker-process.ts";
import { DAEMON_DRAIN_MS, launchDaemon } from "./daemon-process.ts";
import type { PlaneFacts, Report } from "./events.ts";
import type { Child } from "./child.ts";
import { type Lock, takeLock } from "./lock.ts";
import { accountsEnv, authEnv, deliveryEnv, openEnv, settle } from "./plane-settings.ts";
import { type Recorder, createRecorder } from "./recorder.ts";
import { liveChildren, livePlane, readPlane, removePlane } from "./plane-record.ts";
import { endProcess, ownIdentity } from "./process-identity.ts";
import { LOOPBACK, knownSpaces, planePaths, prepareState, sweepState, writeRemembered } from "./state-folder.ts";
import { type Supervised, supervise } from "./supervisor.ts";
import { TrustCommand, runTrust } from "./trust-program.ts";

export type PlaneOptions = {
  readonly state: string;
  readonly space: string;
  /** Default: the state's own, else 4222. */
  readonly port?: number | undefined;
  /** Default: the state's own, else `user`. */
  readonly auth?: AuthMode | undefined;
  readonly report: Report;
  /** Ends a start that is under way, and whatever still runs beside the plane. */
  readonly signal: AbortSignal;
  /** Ends every child at once. */
  readonly killSignal: AbortSignal;
};

export type Plane = {
  readonly facts: PlaneFacts;
  /** Drains and ends every child; safe to call again. */
  readonly stop: () => Promise<void>;
};

const PROGRAM = (daemon: string): string => join(import.meta.dirname, "..", "services", daemon, "main.ts");
const BROKER = "broker";
const BROKER_GRACE_MS = 2500;
const DAY_MS = 86_400_000;

/** Brings the plane up. Throws what went wrong, with everything stopped again. */
export async function startPlane(options: PlaneOptions): Promise<Plane> {
  const { state } = options;
  prepareState(state);
  const lock = await takeLock(state);
  if (lock === undefined) throw alreadyRuns(state);
  const parts: Supervised[] = [];
  const recorder = createRecorder(state, parts);
  const stop = stopper(parts, lock, recorder, options.report);
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  options.killSignal.addEventListener("abort", () => {
    for (const part of parts.toReversed()) part.kill();
  });
  try {
    await endLeftovers(state, options.report);
    sweepState(state);
    const facts = await untilAborted(bringUp({ ...options, signal }, parts, recorder), signal);
    return { facts, stop };
  } catch (thrown) {
    // Also what was started beside the failed step.
    failed.abort();
    await stop();
    if (options.signal.aborted) {
      throw new CotalError(ErrorCode.Cancelled, "the start was ended", { outcome: Outcome.NotExecuted, cause: thrown });
    }
    throw thrown;
  }
}

export function alreadyRuns(state: string): CotalError {
  const plane = livePlane(state);
  const where = plane === undefined ? "" : ` at ${plane.server} (process ${plane.launcher.pid})`;
  return new CotalError(ErrorCode.AlreadyExists, `a space already runs on ${state}${where}`, {
    outcome: Outcome.NotExecuted,
    next: "use it as it is, stop it with cotal down, or name another folder with --state",
  });
}

async function bringUp(options: PlaneOptions, parts: Supervised[], recorder: Recorder): Promise<PlaneFacts> {
  const { state, report, signal } = options;
  const began = performance.now();
  const space = spaceToken(options.space);
  const { port, auth, spaces } = settle(state, space, options);
  await assertPortFree(LOOPBACK, port);
  const server = `nats://${LOOPBACK}:${port}`;
  const timed = stepTimer(report);
  const isOpen = auth === "open";

  const binary = findBroker(process.env);
  const version = await timed("trust", "keys and the broker's configuration", async () => {
    const init = initTrust(options, port, isOpen);
    init.catch(() => undefined);
    const found = await brokerVersion(binary);
    await init;
    return found;
  });
  recorder.begin({
    v: 1,
    phase: "starting",
    launcher: ownIdentity(),
    server,
    port,
    auth,
    space,
    brokerVersion: version,
    startedAt: new Date().toISOString(),
    children: [],
  });
  const keep = async (name: string, launch: () => Promise<Child>): Promise<void> => {
    const part = supervise({ name, launch: () => guarded(signal, launch), report, changed: recorder.write });
    parts.push(part);
    await part.begun;
  };

  // The trust program retries its first dial, so its own start runs beside the broker's.
  // A space keeps the mode it was made with: only a new one is told its mode.
  const isNew = keptAuthMode(state, space) === undefined;
  const order = { state, space, server, ...(isNew ? { auth } : {}) };
  const trusted = isOpen ? undefined : runTrust(TrustCommand.Space, order, signal);
  trusted?.catch(() => undefined);
  await timed("broker", `${binary.from} nats-server ${version}, ${server}`, () =>
    keep(BROKER, () => launchBroker(brokerOptions(state, binary, port))),
  );
  if (trusted !== undefined) await timed("space", `accounts and keys of ${space}`, () => trusted);
  writeRemembered(state, { v: 1, port, auth, ...(isOpen ? { spaces } : {}) });
  const keepDaemon = (name: string, env: Readonly<Record<string, string>>): Promise<void> =>
    keep(name, () => {
      recorder.health(name, undefined);
      return launchDaemon({
        name,
        program: PROGRAM(name),
        log: planePaths(state).log(name),
        env,
        listening: (at) => recorder.health(name, at),
        waiting: (why) => report({ kind: "waiting", child: name, why }),
        isEnough: (failing) => failing.every((check) => isOfOtherSpace(check.name, space)),
      });
    });
  // Side by side: each waits for what the other makes, stores here and ledger rows there.
  const signIn = "sign-in, by the development issuer: whoever can read the state folder is its one person";
  const daemon = (name: string, detail: string, env: Readonly<Record<string, string>>): Promise<void> =>
    timed(name, detail, () => keepDaemon(name, isOpen ? openEnv(server, spaces) : env));
  await Promise.all([
    daemon("provisioner", "streams, buckets and the command rail", accountsEnv(server, state)),
    daemon("delivery", "what is read, and what is kept for who is away", deliveryEnv(server, state)),
    ...(auth === "user" ? [daemon("auth", signIn, authEnv(server, state))] : []),
  ]);
  recorder.phase("ready");
  if (!isOpen) {
    const rest = knownSpaces(state).filter((name) => name !== space);
    void renewSpaces(state, rest, server, report, signal);
    void renewDaily(state, server, report, signal);
  }
  return { server, port, space, auth, state, ms: Math.round(performance.now() - began) };
}

function initTrust(options: PlaneOptions, port: number, isOpen: boolean): Promise<unknown> {
  return runTrust(
    TrustCommand.Init,
    {
      state: options.state,
      host: LOOPBACK,
      port: String(port),
      ...(isOpen ? { open: true } : {}),
    },
    options.signal,
  );
}

function brokerOptions(state: string, binary: BrokerBinary, port: number): Parameters<typeof launchBroker>[0] {
  return {
    binary: binary.path,
    config: join(state, "broker", "nats-server.conf"),
    log: planePaths(state).log("broker"),
    host: LOOPBACK,
    port,
  };
}

/** Names of the daemons' checks: `loop:space:<s>`, `connection:<s>.<which>`, `claim:<s>` and `plane:<s>`. */
function isOfOtherSpace(check: string, space: string): boolean {
  const of = /^(?:loop:space:|connection:|claim:|plane:)([^.]+)/.exec(check)?.[1];
  return of !== undefined && of !== space;
}

/** Nothing is started once the start was ended. */
function guarded<T>(signal: AbortSignal, run: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(new CotalError(ErrorCode.Cancelled, "the start was ended"));
  return run();
}

function stepTimer(report: Report) {
  return async <T>(step: string, detail: string, run: () => Promise<T>): Promise<T> => {
    const began = performance.now();
    const value = await run();
    report({ kind: "step", step, ms: Math.round(performance.now() - began), detail });
    return value;
  };
}

/** Operator credentials of the other spaces are renewed behind the start, one after the other. */
async function renewSpaces(
  state: string,
  spaces: readonly string[],
  server: string,
  report: Report,
  signal: AbortSignal,
): Promise<void> {
  for (const space of spaces) {
    if (signal.aborted) return;
    try {
      await runTrust(TrustCommand.Space, { state, space, server }, signal);
    } catch (thrown) {
      if (signal.aborted) return;
      const { message, next } = toCotalError(thrown);
      report({ kind: "warning", message: `space ${space}: ${message}`, next: next ?? "run cotal space add again" });
    }
  }
}

/** The operator's credential lives thirty days: a plane that runs longer than half of that renews it. */
async function renewDaily(state: string, server: string, report: Report, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      await sleep(DAY_MS, undefined, { signal, ref: false });
    } catch {
      // The plane is ending.
      return;
    }
    await renewSpaces(state, knownSpaces(state), server, report, signal);
  }
}

/** A launcher that was killed leaves its broker; the daemons end by themselves. */
async function endLeftovers(state: string, report: Report): Promise<void> {
  const record = readPlane(state);
  if (record === undefined) return;
  for (const child of liveChildren(record).toReversed()) {
    report({
      kind: "warning",
      message: `an earlier launcher was killed and left its ${child.name} (process ${child.process.pid}); it is ended now`,
      next: "nothing to do",
    });
    if (!(await endProcess(child.process, BROKER_GRACE_MS))) {
      throw new CotalError(ErrorCode.FailedPrecondition, `process ${child.process.pid} does not end`, {
        next: "end it by hand, then run cotal up again",
      });
    }
  }
  removePlane(state);
}

function stopper(parts: readonly Supervised[], lock: Lock, recorder: Recorder, report: Report): () => Promise<void> {
  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    if (parts.length > 0) {
      report({ kind: "stopping" });
      recorder.phase("stopping");
    }
    // The daemons drain side by side: one after the other they would need more than ten seconds.
    const daemons = parts.filter(({ name }) => name !== BROKER);
    await Promise.all(daemons.map((part) => part.stop(DAEMON_DRAIN_MS + 500)));
    await parts.find(({ name }) => name === BROKER)?.stop(BROKER_GRACE_MS);
    recorder.end();
    await lock.release();
  };
  return () => (stopping ??= stop());
}

/** The start's own promise, or a rejection at the moment it is ended. */
function untilAborted<T>(start: Promise<T>, signal: AbortSignal): Promise<T> {
  start.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new CotalError(ErrorCode.Cancelled, "the start was ended"));
    if (signal.aborted) ended();
    signal.addEventListener("abort", ended, { once: true });
    start.then(resolve, reject);
  });
}
