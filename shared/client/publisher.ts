/**
 * Publishing with a receipt: every message goes out with a reply subject of its own on one mux
 * subscription, and settles with the broker's PubAck (§8).
 *
 * Invariants
 * 1. A reply token is drawn per message: it is visible to live subscribers while the message is
 *    under way, and whoever could guess the next one could aim a broker's receipt at it.
 * 2. A receipt counts only if it is JSON, names the stream that was expected and a sequence.
 * 3. A refusal settles at once as `permission-denied`, silence as `unavailable` with the outcome
 *    `unknown`; what never left is `not-executed`.
 * 4. What is unsettled after a reconnect is sent again under the same message id, so the stream
 *    keeps one copy; the result then says `duplicate` if the first had arrived.
 * 5. Bounded: over the limits a publish is refused, never queued.
 */
import { type Msg, type MsgHdrs, type NatsConnection, headers } from "@nats-io/transport-node";
import { fromApi } from "../broker/errors.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { Header } from "../protocol/base/headers.ts";
import { type RandomBytes, drawNonce } from "../protocol/base/principals.ts";
import { DeliveryKind, parseSubject } from "../protocol/base/subjects.ts";
import type { DenialWatch } from "./denials.ts";
import { statusOf } from "./wire.ts";

/** What the broker said of a message: the fact that a send rests on. */
export type Receipt = { readonly stream: string; readonly seq: number; readonly duplicate: boolean };

export type PublisherOptions = {
  readonly nc: NatsConnection;
  readonly inboxPrefix: string;
  readonly denials: DenialWatch;
  readonly random: RandomBytes;
  readonly isUp: () => boolean;
  /** Largest payload that the server which answered last takes, and a space holds. */
  readonly maxPayload: () => number;
  readonly timeoutMs: number;
  readonly maxPending: number;
  readonly maxPendingBytes: number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Publication = {
  readonly subject: string;
  readonly stream: string;
  readonly payload: string;
  /** The message's id, which becomes `Nats-Msg-Id`; left out for presence. */
  readonly msgId?: string;
};

export type Publisher = {
  readonly publish: (publication: Publication) => Promise<Receipt>;
  /** After a reconnect: sends again what is unsettled. */
  readonly resend: () => void;
  readonly pending: () => number;
  /** Waits until nothing is pending, or the time is up. */
  readonly settled: (timeoutMs: number) => Promise<void>;
  /** Fails what is pending and ends. */
  readonly close: () => void;
};

type Pending = {
  readonly token: string;
  readonly publication: Publication;
  readonly bytes: Uint8Array;
  readonly headers: MsgHdrs | undefined;
  readonly deadline: number;
  sent: boolean;
  readonly resolve: (receipt: Receipt) => void;
  readonly reject: (error: CotalError) => void;
};

const SWEEP_MS = 100;
/** Room for the header block: `NATS/1.0`, the id's line, and the line ends. */
const HEADER_ROOM = 64;
const encoder = new TextEncoder();

export function createPublisher(options: PublisherOptions): Publisher {
  const { nc, denials, now } = options;
  const lead = `${options.inboxPrefix}.pub.`;
  const pending = new Map<string, Pending>();
  const bySubject = new Map<string, { readonly unwatch: () => void; readonly waiting: Set<Pending> }>();
  const idle = new Set<() => void>();
  let pendingBytes = 0;
  let sweeper: NodeJS.Timeout | undefined;
  let closed = false;

  const subscription = nc.subscribe(`${lead}*`, {
    callback: (error, message) => {
      if (error === null) receipt(message);
    },
  });

  const forget = (entry: Pending): boolean => {
    if (!pending.delete(entry.token)) return false;
    pendingBytes -= entry.bytes.length;
    const group = bySubject.get(entry.publication.subject);
    group?.waiting.delete(entry);
    if (group?.waiting.size === 0) {
      group.unwatch();
      bySubject.delete(entry.publication.subject);
    }
    if (pending.size === 0) {
      clearInterval(sweeper);
      sweeper = undefined;
      for (const woken of idle) woken();
      idle.clear();
    }
    return true;
  };
  const fail = (entry: Pending, error: CotalError): void => {
    if (forget(entry)) entry.reject(error);
  };

  const receipt = (message: Msg): void => {
    const entry = pending.get(message.subject.slice(lead.length));
    if (entry === undefined) return;
    if (statusOf(message) === 503) return fail(entry, notStored(entry.publication));
    const read = readReceipt(message, entry.publication);
    // Bytes that are no receipt of ours settle nothing; the deadline does.
    if (read === undefined) return;
    if (read instanceof CotalError) return fail(entry, read);
    if (forget(entry)) entry.resolve(read);
  };

  /** Denials carry the subject only; they come in the order of the publishes. */
  const denied = (subject: string): void => {
    const first = bySubject.get(subject)?.waiting.values().next().value;
    if (first !== undefined) fail(first, refusedPublish(first.publication));
  };

  const watch = (entry: Pending): void => {
    const { subject } = entry.publication;
    const group = bySubject.get(subject) ?? {
      waiting: new Set<Pending>(),
      unwatch: denials.watch("publish", subject, () => denied(subject)),
    };
    group.waiting.add(entry);
    bySubject.set(subject, group);
  };

  const transmit = (entry: Pending): void => {
    try {
      nc.publish(entry.publication.subject, entry.bytes, {
        reply: lead + entry.token,
        ...(entry.headers === undefined ? {} : { headers: entry.headers }),
      });
      entry.sent = true;
    } catch {
      fail(entry, unsent("the connection is closed"));
    }
  };

  const sweep = (): void => {
    const time = now();
    // One timeout for all, so the first of the map is the oldest.
    for (const entry of pending.values()) {
      if (entry.deadline > time) return;
      fail(entry, entry.sent ? silence(options.timeoutMs) : unsent("the broker can't be reached"));
    }
  };

  return {
    publish: (publication) => {
      const bytes = encoder.encode(publication.payload);
      const refusal = closed
        ? unsent("the session is closed")
        : refusalOf(options, publication, bytes, pending.size, pendingBytes);
      if (refusal !== undefined) return Promise.reject(refusal);
      return new Promise((resolve, reject) => {
        const token = drawNonce(options.random);
        const entry: Pending = {
          token,
          publication,
          bytes,
          headers: idHeader(publication.msgId),
          deadline: now() + options.timeoutMs,
          sent: false,
          resolve,
          reject,
        };
        pending.set(token, entry);
        pendingBytes += bytes.length;
        watch(entry);
        sweeper ??= setInterval(sweep, SWEEP_MS);
        if (options.isUp()) transmit(entry);
      });
    },
    resend: () => {
      for (const entry of pending.values()) transmit(entry);
    },
    pending: () => pending.size,
    settled: (timeoutMs) => settled(pending, idle, timeoutMs),
    close: () => {
      closed = true;
      subscription.unsubscribe();
      for (const entry of pending.values()) {
        fail(entry, entry.sent ? silence(options.timeoutMs) : unsent("the session was closed"));
      }
    },
  };
}

function idHeader(msgId: string | undefined): MsgHdrs | undefined {
  if (msgId === undefined) return undefined;
  const block = headers();
  block.set(Header.MsgId, msgId);
  return block;
}

function refusalOf(
  options: PublisherOptions,
  { msgId = "" }: Publication,
  bytes: Uint8Array,
  count: number,
  total: number,
): CotalError | undefined {
  const limit = options.maxPayload();
  if (bytes.length + HEADER_ROOM + msgId.length > limit) {
    return badRequest(
      `the message has ${bytes.length} bytes, and the space takes ${limit} with its headers`,
      "put the bytes elsewhere and send an artifact part that names their digest",
    );
  }
  if (count < options.maxPending && total + bytes.length <= options.maxPendingBytes) return undefined;
  return new CotalError(ErrorCode.ResourceExhausted, `${count} messages wait for the broker's receipt already`, {
    outcome: Outcome.NotExecuted,
    next: "await the results of earlier sends before sending more",
  });
}

function readReceipt(message: Msg, expected: Publication): Receipt | CotalError | undefined {
  let value: unknown;
  try {
    value = message.json();
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { stream, seq, duplicate, error } = value as Record<string, unknown>;
  if (typeof error === "object" && error !== null) return refusedStore(error as Record<string, unknown>);
  if (stream !== expected.stream || typeof seq !== "number" || !Number.isSafeInteger(seq) || seq < 1) return undefined;
  return { stream: expected.stream, seq, duplicate: duplicate === true };
}

function refusedStore({ code, err_code, description }: Record<string, unknown>): CotalError {
  return fromApi(
    {
      code: typeof code === "number" ? code : 500,
      ...(typeof err_code === "number" ? { err_code } : {}),
      ...(typeof description === "string" ? { description } : {}),
    },
    "the message was not stored",
  );
}

function settled(pending: Map<string, unknown>, idle: Set<() => void>, timeoutMs: number): Promise<void> {
  if (pending.size === 0) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      idle.delete(done);
      resolve();
    };
    const timer = setTimeout(done, timeoutMs);
    idle.add(done);
  });
}

function refusedPublish({ subject }: Publication): CotalError {
  return new CotalError(ErrorCode.PermissionDenied, `this credential may not ${deed(subject).slice(0, 200)}`, {
    outcome: Outcome.NotExecuted,
    next: "ask the operator for more: cotal mint, or cotal actor grant where people sign in",
  });
}

/** A refused publish in the words of who tried it. */
function deed(subject: string): string {
  const split = parseSubject(subject);
  switch (split?.kind) {
    case DeliveryKind.Chat:
      return `post to #${split.rest}`;
    case DeliveryKind.Inst:
      return `write to ${split.rest}`;
    case DeliveryKind.Svc:
      return `ask the role ${split.rest}`;
    default:
      return `publish on ${subject}`;
  }
}

function notStored({ stream }: Publication): CotalError {
  return new CotalError(ErrorCode.Unavailable, `nothing stores this message: the stream ${stream} does not answer`, {
    outcome: Outcome.NotExecuted,
    next: "check that the space is set up (cotal doctor)",
  });
}

function silence(timeoutMs: number): CotalError {
  return new CotalError(ErrorCode.Unavailable, `the broker confirmed nothing within ${timeoutMs} ms`, {
    outcome: Outcome.Unknown,
    next: "the message may be stored; read the channel's history before you send it again",
  });
}

function unsent(why: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `the message was not sent: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "send it again once the connection is up",
  });
}
