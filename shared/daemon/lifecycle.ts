/**
 * The life of a daemon's process, the same for all: start, be ready, drain, end with a code.
 *
 *     starting ──▶ ready ──▶ draining ──▶ stopped
 *         └─────────────────────▲
 *
 * Invariants
 * 1. There is one way out. A signal, a parent that is gone, a failed start, a fault, an exception that
 *    nobody caught: each is a reason (`stops.ts`), each drains, and `runDaemon` exits. Only a second
 *    signal skips the drain.
 * 2. The exit code is that of the first thing that went wrong (`exit-codes.ts`).
 * 3. The health server starts first and ends last: whoever asks always hears where we are.
 * 4. What a start took before it failed, a loop or a connection, is given back all the same.
 */
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { type BackoffOptions, createBackoff } from "./backoff.ts";
import type { Config, ConfigSource } from "./config.ts";
import { type Phase, type PhaseFailure, drainPhases } from "./drain.ts";
import { EXIT_CODES, ExitCode, exitCodeOf } from "./exit-codes.ts";
import { startHealthServer } from "./health-server.ts";
import { type Health, createHealth } from "./health.ts";
import { type Host, processHost } from "./host.ts";
import { type Kept, type Loop, type LoopEnd, keep } from "./keep.ts";
import { type Log, createLog } from "./log.ts";
import { type Metrics, createMetrics } from "./metrics.ts";
import { type Releasers, createReleasers } from "./releasers.ts";
import type { CommonValues } from "./settings.ts";
import { type StopReason, watchStops } from "./stops.ts";

/** What a started daemon hands back: how to stop taking work, and how to finish what it took. */
export type Running = {
  readonly stopIntake: () => Promise<void> | void;
  /** Settles when nothing is in flight. After `giveUp` nobody waits any longer. */
  readonly drain: (giveUp: AbortSignal) => Promise<void> | void;
};

/** What a daemon's `start` is given. */
export type Context<V> = {
  readonly values: V;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly health: Health;
  /** Push a releaser for each connection at the moment it is open. */
  readonly releasers: Pick<Releasers, "push">;
  /** Aborted when the drain begins; a start that is under way gives up. */
  readonly stopping: AbortSignal;
  /** Starts a supervised background loop; it is stopped after the work and before the connections. */
  readonly keep: (name: string, run: (loop: Loop) => Promise<LoopEnd>, backoff?: BackoffOptions) => Kept;
  /** Ends the process in order, with the exit code of this cause. */
  readonly end: (cause: unknown) => void;
};

export type Daemon<V extends CommonValues> = {
  /** Lower-case; the `service` of the log and the middle of the metric names. */
  readonly name: string;
  readonly config: Config<V>;
  readonly options?: ConfigSource<V>["options"];
  /** Settles when the daemon serves. */
  readonly start: (context: Context<V>) => Promise<Running>;
};

type Begun =
  | { readonly kind: "running"; readonly running: Running }
  | Extract<StopReason, { readonly kind: "start-failed" }>;

type State =
  | { readonly phase: "starting" }
  | { readonly phase: "ready"; readonly running: Running }
  | { readonly phase: "draining"; readonly reason: StopReason }
  | { readonly phase: "stopped"; readonly code: ExitCode };

/** Runs a daemon to its end. The promise settles only where `host.exit` returns, that is, in tests. */
export async function runDaemon<V extends CommonValues>(
  daemon: Daemon<V>,
  host: Host = processHost(),
): Promise<ExitCode> {
  const sink = host.log === undefined ? {} : { destination: host.log };
  let log = createLog({ service: daemon.name, level: "info", ...sink });
  let code: ExitCode;
  try {
    const options = daemon.options === undefined ? {} : { options: daemon.options };
    const { values, warnings } = daemon.config.read({ env: host.env, ...options });
    log = createLog({ service: daemon.name, level: values.logLevel, ...sink });
    for (const warning of warnings) log.warn("the configuration has a flaw", { warning });
    code = await live(daemon, values, host, log);
  } catch (cause) {
    // Only the configuration throws up to here by design; anything else is `internal`.
    log.fatal("the process can't start", { err: cause });
    code = exitCodeOf(cause);
  }
  log.info("stopped", { exitCode: code, ...EXIT_CODES[code] });
  host.exit(code);
  return code;
}

async function live<V extends CommonValues>(daemon: Daemon<V>, values: V, host: Host, log: Log): Promise<ExitCode> {
  const stops = watchStops(host, log, values.parentIpc);
  const metrics = createMetrics({ daemon: daemon.name });
  const health = createHealth();
  const releasers = createReleasers();
  const stopping = new AbortController();
  const kept = new Set<Kept>();
  measureChecks(metrics, health);
  const restarts = metrics.counter({
    name: `${metrics.prefix}loop_restarts_total`,
    help: "Background loops that failed and were started again.",
    labels: ["loop"],
  });

  const here = health.check("lifecycle");
  let state: State = { phase: "starting" };
  const enter = (next: State): void => {
    state = next;
    if (next.phase === "ready") {
      log.info("started");
      here.ok();
    } else if (next.phase === "draining") {
      sayWhy(log, next.reason, values.drainMs);
      here.fail("the process is draining", "send new work to another instance");
      stopping.abort();
    }
  };
  here.fail("the process is starting", "wait; the other checks and the log say what it waits for");

  const context: Context<V> = {
    values,
    log,
    metrics,
    health,
    releasers,
    stopping: stopping.signal,
    keep: (name, run, backoff = {}) => {
      if (stopping.signal.aborted) {
        throw new CotalError(ErrorCode.FailedPrecondition, `the loop ${name} can't start: the process is draining`);
      }
      const one = keep(name, run, {
        health,
        log,
        backoff: createBackoff({ random: host.random, now: host.now, ...backoff }),
        onFatal: (cause) => stops.ask({ kind: "fault", cause }),
        onRestart: () => restarts.inc({ loop: name }),
      });
      kept.add(one);
      void one.ended.then(() => kept.delete(one));
      return one;
    },
    end: (cause) => stops.ask({ kind: "fault", cause }),
  };

  const begin = async (): Promise<Begun> => {
    try {
      const { healthHost, healthPort } = values;
      const server = await startHealthServer({ host: healthHost, port: healthPort, health, metrics, log });
      releasers.push("the health server", server.close);
      log.info("health is served", { host: healthHost, port: server.port });
      host.tellParent({ kind: "listening", health: server.port });
      onceReady(
        health,
        () => state.phase === "ready",
        () => {
          log.info("ready");
          host.tellParent({ kind: "ready", health: server.port });
        },
      );
      return { kind: "running", running: await daemon.start(context) };
    } catch (cause) {
      return { kind: "start-failed", cause };
    }
  };

  const beginning = begin();
  let first: Begun | StopReason = await Promise.race([beginning, stops.first]);
  if (first.kind === "running") {
    enter({ phase: "ready", running: first.running });
    first = await stops.first;
  }
  enter({ phase: "draining", reason: first });
  const failures = await drainPhases(endingPhases(beginning, kept, releasers, log), {
    drainMs: values.drainMs,
    now: host.now,
    log,
  });
  const code = verdict(first, failures, stops.uncaught());
  enter({ phase: "stopped", code });
  stops.off();
  return code;
}

/** Intake, in flight, background, connections; and before them the start, if it is still under way. */
function endingPhases(
  beginning: Promise<Begun>,
  kept: ReadonlySet<Kept>,
  releasers: Releasers,
  log: Log,
): readonly Phase[] {
  let running: Running | undefined;
  return [
    {
      name: "start",
      until: "work",
      run: async () => {
        const begun = await beginning;
        if (begun.kind === "running") running = begun.running;
      },
    },
    { name: "intake", until: "work", run: () => running?.stopIntake() },
    { name: "in flight", until: "work", run: (giveUp) => running?.drain(giveUp) },
    { name: "background", until: "end", run: () => Promise.all([...kept].map((one) => one.stop())) },
    {
      name: "connections",
      until: "end",
      run: async () => {
        const { failed } = await releasers.releaseAll();
        for (const { name, cause } of failed) log.error("a resource was not released in order", { name, err: cause });
        if (failed[0] !== undefined) throw failed[0].cause;
      },
    },
  ];
}

/** The first thing that went wrong: the reason, an exception meanwhile, a phase of the drain. */
function verdict(reason: StopReason, failures: readonly PhaseFailure[], uncaught: boolean): ExitCode {
  const codes: ExitCode[] = [
    "cause" in reason && reason.kind !== "uncaught" ? exitCodeOf(reason.cause) : ExitCode.Clean,
    uncaught ? ExitCode.Internal : ExitCode.Clean,
    ...failures.map(({ cause }) =>
      cause instanceof CotalError && cause.code === ErrorCode.DeadlineExceeded
        ? ExitCode.DrainCutShort
        : ExitCode.Internal,
    ),
  ];
  return codes.find((code) => code !== ExitCode.Clean) ?? ExitCode.Clean;
}

function sayWhy(log: Log, reason: StopReason, drainMs: number): void {
  if ("cause" in reason) log.fatal("draining", { reason: reason.kind, drainMs, err: reason.cause });
  else log.info("draining", { ...reason, drainMs });
}

/** Calls back once: when the daemon has started and every check is ok for the first time. */
function onceReady(health: Health, started: () => boolean, tell: () => void): void {
  let told = false;
  health.onChange(() => {
    if (told || !started() || health.report().status !== "ok") return;
    told = true;
    tell();
  });
}

function measureChecks(metrics: Metrics, health: Health): void {
  const gauge = metrics.gauge({
    name: `${metrics.prefix}check_state`,
    help: "1 if the health check is ok, 0 if it fails.",
    labels: ["check"],
  });
  health.onChange((change) => {
    if ("removed" in change) gauge.remove({ check: change.name });
    else gauge.set({ check: change.name }, change.ok ? 1 : 0);
  });
}
