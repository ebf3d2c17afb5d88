/**
 * W3C Trace Context, level 1: the `traceparent` of `correlation` (§13.3), read and written.
 *
 * Tracing is advisory. So a malformed value is ignored like an absent one: it never refuses a request.
 */

export type Trace = {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** The caller's span, 16 lower-case hex digits. */
  readonly spanId: string;
  readonly sampled: boolean;
};

/** `version-traceid-spanid-flags`; a later version may add `-` and more. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,200})?$/;
const ALL_ZERO = /^0+$/;
const SAMPLED = 0x01;

/** The trace of a `traceparent`, or `undefined` for anything that is not one. */
export function parseTraceparent(value: unknown): Trace | undefined {
  if (typeof value !== "string") return undefined;
  const [, version, traceId, spanId, flags, more] = TRACEPARENT.exec(value) ?? [];
  if (version === undefined || traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  if (version === "ff" || ALL_ZERO.test(traceId) || ALL_ZERO.test(spanId)) return undefined;
  if (version === "00" && more !== undefined) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & SAMPLED) !== 0 };
}

/** Always version 00, and no flag but `sampled`: what a later version means by others we don't know. */
export function formatTraceparent(trace: Trace): string {
  return `00-${trace.traceId}-${trace.spanId}-${trace.sampled ? "01" : "00"}`;
}

/** The same trace one call deeper. `random` yields that many random bytes. */
export function childTrace(parent: Trace, random: (size: number) => Uint8Array): Trace {
  return { ...parent, spanId: hex(random(8)) };
}

/** A trace that begins here. */
export function newTrace(random: (size: number) => Uint8Array, sampled: boolean): Trace {
  return { traceId: hex(random(16)), spanId: hex(random(8)), sampled };
}

/** An all-zero id is invalid; a source that yields one gets its last digit set. */
function hex(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString("hex");
  return ALL_ZERO.test(text) ? `${text.slice(0, -1)}1` : text;
}
