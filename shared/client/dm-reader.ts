/**
 * Reads one direct-message inbox with nothing but its durable (§9 `dm-reader`): for a bridge that carries
 * somebody's mail elsewhere, with a token that was made for that one inbox.
 *
 * ```ts
 * const reader = await openDmReader({ servers, exchange, space: "main", actor: "cli", idToken });
 * for await (const item of reader.inbox()) await carry(item);
 * await reader.closed;
 * ```
 *
 * Invariants
 * 1. One exchange, one bearer: when it ends, reading ends, with `expired`. Nothing is renewed, because the
 *    token was made for one use; whoever reads on opens another with a fresh token.
 * 2. It pulls, acknowledges and gives back, and sends nothing else: it has no other row (decision H60).
 * 3. What is not acknowledged when it ends is the next reader's: pulls stop a little before the bearer does.
 */
import { randomBytes } from "node:crypto";
import type { TlsOptions } from "@nats-io/transport-node";
import { type Connection, type ReconnectPolicy, openConnection } from "../broker/connect.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { inboxPrefix } from "../protocol/base/broker-subjects.ts";
import { dmDurable, spaceNames } from "../protocol/base/names.ts";
import { connId, dotForm, drawNonce, principal } from "../protocol/base/principals.ts";
import { DeliveryKind, spaceToken } from "../protocol/base/subjects.ts";
import { View } from "../protocol/endpoint/views.ts";
import { createDurableReader } from "./durable.ts";
import { type SessionEvent, createEvents } from "./events.ts";
import { type ExchangeAt, type Exchanged, askExchange } from "./exchange.ts";
import { type Inbox, createReaders } from "./inbox.ts";
import type { InboxItem } from "./item.ts";
import { durableMissing } from "./listening.ts";
import { Lane, createMailbox } from "./mailbox.ts";
import { DEFAULT_LIMITS, type Limits } from "./options.ts";
import type { PullState } from "./pull.ts";
import { createSeen } from "./seen.ts";
import { within } from "./shutdown.ts";
import { tokenOf } from "./user-identity.ts";

export type DmReaderOptions = {
  readonly servers: readonly string[];
  /** A loopback face: no other issues this view. */
  readonly exchange: ExchangeAt;
  /** A token of the dedicated audience, made for this actor's inbox in its present lifecycle (§10). */
  readonly idToken: () => Promise<string>;
  readonly space: string;
  readonly actor: string;
  readonly reconnect?: ReconnectPolicy;
  readonly tls?: TlsOptions;
  readonly onEvent?: (event: SessionEvent) => void;
  readonly limits?: Partial<Pick<Limits, "held" | "pulls" | "pullExpiresMs" | "ackWaitMs">>;
  readonly signal?: AbortSignal;
};

export type DmReader = {
  /** Dot-form of whose inbox it is. */
  readonly id: string;
  readonly lifecycleUid: string;
  /** Unix seconds. */
  readonly expiresAt: number;
  /** Messages as they come; `for await` acknowledges one when it asks for the next. */
  readonly inbox: () => Inbox;
  /** Whether the durable answers: an inbox that is `missing` is not an empty one. */
  readonly state: () => PullState;
  /** Resolves at the end: with its cause (`expired` where the bearer ended), with nothing after `close`. */
  readonly closed: Promise<CotalError | undefined>;
  /** Ends in good order: what nobody has taken goes back. */
  readonly close: () => Promise<void>;
};

const STOP_MS = 2800;
const DRAIN_MS = 800;
/** How long before its bearer's end a reader stops, if the bearer lives long enough. */
const MARGIN_MS = 4000;

/** Opens it. Throws a `CotalError`: what the exchange refuses, or a broker that can't be reached. */
export async function openDmReader(options: DmReaderOptions): Promise<DmReader> {
  const space = spaceToken(options.space);
  const { actor } = principal("local", options.actor);
  const idToken = await tokenOf(options);
  const asked = performance.now();
  const got = await askExchange(options.exchange, { space, actor, idToken, view: View.DmReader }, options.signal);
  const nonce = drawNonce(randomBytes);
  let reconnected = (): void => undefined;
  const connection = await openConnection({
    servers: options.servers,
    authenticator: { jwt: () => got.sentinel, token: () => got.bearer },
    inboxPrefix: inboxPrefix(got.lifecycleUid, nonce),
    name: connId(got.lifecycleUid, nonce),
    reconnect: options.reconnect ?? { kind: "endless" },
    onStatus: ({ type }) => {
      if (type === "up") reconnected();
    },
    ...(options.tls === undefined ? {} : { tls: options.tls }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const made = read(connection, got, { ...options, space }, asked + got.lifeMs);
  reconnected = made.reconnected;
  return made.reader;
}

type Made = { readonly reader: DmReader; readonly reconnected: () => void };

/** `end`: when the bearer ends, in monotonic milliseconds. */
function read(connection: Connection, got: Exchanged, options: DmReaderOptions, end: number): Made {
  const events = createEvents(options.onEvent);
  const mailbox = createMailbox<InboxItem>({ liveCapacity: 1, onDropped: events.dropped });
  const readers = createReaders(mailbox, events);
  const me = principal(got.owner, got.actor);
  const id = dotForm(me);
  const durable = dmDurable(me, got.lifecycleUid);
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const pulled = createDurableReader({
    nc: connection.nc,
    rail: "dm",
    stream: spaceNames(options.space).dm,
    durable,
    replyLead: `${connection.inboxPrefix}.pull.${drawNonce(randomBytes)}.`,
    expected: { space: options.space, kind: DeliveryKind.Inst, target: id },
    capacity: limits.held,
    maxOutstanding: limits.pulls,
    expiresMs: limits.pullExpiresMs,
    ackWaitMs: limits.ackWaitMs,
    seen: createSeen(),
    events,
    isUp: connection.isUp,
    deliver: (item) => mailbox.push(Lane.Durable, item),
    onState: (state, before) => {
      if (state === "missing") mailbox.fail(durableMissing(durable));
      else if (before === "missing") mailbox.recover();
    },
    now: () => performance.now(),
  });

  let cause: CotalError | undefined;
  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    clearTimeout(timer);
    const pulls = pulled.stopPulling();
    for (const item of mailbox.close()) item.nak(0);
    await within(pulls, STOP_MS);
    pulled.giveBack();
    await connection.drain(DRAIN_MS);
  };
  const expire = (): void => {
    cause = over();
    mailbox.fail(cause);
    stopping ??= stop();
  };
  const left = end - performance.now();
  const timer = setTimeout(expire, Math.max(0, left - Math.min(MARGIN_MS, left / 4)));
  const closed = connection.closed.then((error) => {
    clearTimeout(timer);
    pulled.stop();
    cause ??= error;
    if (cause !== undefined && stopping === undefined) mailbox.fail(cause);
    mailbox.close();
    events.close();
    return cause;
  });
  const close = async (): Promise<void> => {
    await (stopping ??= stop());
    await closed;
  };
  const { lifecycleUid, expiresAt } = got;
  const reader = { id, lifecycleUid, expiresAt, inbox: readers.iterate, state: pulled.state, closed, close };
  return { reader, reconnected: pulled.reconnected };
}

function over(): CotalError {
  return new CotalError(ErrorCode.Expired, "reading ended with the token that it was opened with", {
    outcome: Outcome.NotExecuted,
    next: "open another reader with a fresh token; what was not acknowledged comes again",
  });
}
