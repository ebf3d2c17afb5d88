/**
 * The log of a daemon: one JSON object per line, on standard output.
 *
 * A small face over pino, for two reasons: every value passes the guard of `redact.ts` before pino
 * sees it (pino's own formatter is not asked for child bindings), and nobody needs to know pino.
 *
 * Invariants
 * 1. No line leaves without both layers of the guard: `scrub` on the way in, `redactText` on the way out.
 * 2. The message is a fixed sentence; what varies is a field. There is no interpolation.
 * 3. Writing is synchronous, so the last line before an exit is never lost.
 */
import { type DestinationStream, type Logger, destination as pinoDestination, pino } from "pino";
import { redactText, safeText, scrub } from "./redact.ts";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
type WrittenLevel = Exclude<LogLevel, "silent">;

export type Fields = Readonly<Record<string, unknown>>;
type Write = (message: string, fields?: Fields) => void;

/** What every part of a daemon logs through. Put a thrown value into the field `err`. */
export type Log = Readonly<Record<WrittenLevel, Write>> & {
  /** A log that adds these fields to each of its lines: `space`, `requestId`, `principal`, … */
  readonly child: (fields: Fields) => Log;
};

export type LogOptions = {
  /** The daemon's name; the field `service`. */
  readonly service: string;
  readonly level: LogLevel;
  /** Where lines go; standard output if not given. */
  readonly destination?: DestinationStream;
  /** Wall clock, epoch milliseconds. */
  readonly now?: () => number;
};

export function createLog(options: LogOptions): Log {
  const now = options.now ?? Date.now;
  const logger = pino(
    {
      level: options.level,
      base: { service: options.service },
      timestamp: () => `,"time":"${new Date(now()).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (value: unknown) => value },
      hooks: { streamWrite: redactText },
    },
    options.destination ?? standardOutput(),
  );
  return face(logger);
}

function face(logger: Logger): Log {
  const at =
    (level: WrittenLevel): Write =>
    (message, fields) => {
      if (!logger.isLevelEnabled(level)) return;
      logger[level](guarded(fields), safeText(message));
    };
  return {
    trace: at("trace"),
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    fatal: at("fatal"),
    child: (fields) => face(logger.child(guarded(fields))),
  };
}

function guarded(fields: Fields | undefined): Record<string, unknown> {
  const safe = scrub(fields ?? {});
  return typeof safe === "object" && safe !== null ? { ...safe } : {};
}

/** A closed pipe ends the log and nothing else (pino sees to it); any other fault is told once. */
function standardOutput(): DestinationStream {
  const stream = pinoDestination({ dest: 1, sync: true });
  stream.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") process.stderr.write(`the log cannot be written: ${error.code ?? error.message}\n`);
  });
  return stream;
}

export type RepeatLimit = {
  /** A line of one key is written at most once in this time. */
  readonly windowMs?: number;
  /** Keys that are told apart; all further ones share one line. */
  readonly maxKeys?: number;
  /** Monotonic clock, milliseconds. */
  readonly now?: () => number;
};

export type LimitedWrite = (key: string, level: WrittenLevel, message: string, fields?: Fields) => void;

/**
 * A log for faults that may repeat as fast as a peer likes. The first line of a key is written; later
 * ones within the window are only counted, and the next line says how many were left out. When all
 * keys are taken, new ones share a line, so that neither memory nor the log grows with the keys.
 */
export function limitRepeats(log: Log, limit: RepeatLimit = {}): LimitedWrite {
  const { windowMs = 60_000, maxKeys = 256, now = () => performance.now() } = limit;
  const seen = new Map<string, { until: number; omitted: number }>();
  const overflow = { until: 0, omitted: 0 };
  return (key, level, message, fields) => {
    const at = now();
    let entry = seen.get(key);
    if (entry === undefined) {
      if (seen.size >= maxKeys) for (const [old, { until }] of seen) if (until <= at) seen.delete(old);
      entry = seen.size >= maxKeys ? overflow : { until: at, omitted: 0 };
      if (entry !== overflow) seen.set(key, entry);
    }
    if (entry.until > at) {
      entry.omitted += 1;
      return;
    }
    log[level](message, entry.omitted === 0 ? fields : { ...fields, omitted: entry.omitted });
    entry.until = at + windowMs;
    entry.omitted = 0;
  };
}
