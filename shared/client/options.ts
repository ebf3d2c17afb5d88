/** What a user says to open a session, and the bounds that hold when they say nothing. */
import type { ReconnectPolicy } from "../broker/connect.ts";
import type { TlsOptions } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { HEARTBEAT_MS } from "../protocol/chat/presence.ts";
import { type JoinLink, parseJoinLink } from "../protocol/chat/join-link.ts";
import type { SessionEvent } from "./events.ts";
import type { IdentityOptions, SessionCredentials } from "./identity.ts";
import type { CardOptions } from "./presence.ts";

/** Bounds and times of a session; times in milliseconds. */
export type Limits = {
  /** How long a send waits for the broker's receipt. */
  readonly publishTimeoutMs: number;
  /** Sends that may wait for a receipt at once, and their bytes. */
  readonly maxPending: number;
  readonly maxPendingBytes: number;
  /** Direct messages held unhandled; more stay at the broker. */
  readonly held: number;
  /** Role requests held unhandled: what one holder hoards, no other can do. */
  readonly roleHeld: number;
  /** Most single pulls out at once under load. */
  readonly pulls: number;
  /** Life of one pull. A lost one is noticed two seconds later. */
  readonly pullExpiresMs: number;
  /** The durables' ack wait (§8). */
  readonly ackWaitMs: number;
  /** Live channel messages kept for a slow reader; then the oldest go. */
  readonly liveCapacity: number;
  /** How long a mediated read may take. */
  readonly readTimeoutMs: number;
  /** How long a take of a role request may stay unanswered. */
  readonly takeTimeoutMs: number;
  readonly heartbeatMs: number;
  readonly probeTimeoutMs: number;
};

export const DEFAULT_LIMITS: Limits = {
  publishTimeoutMs: 5000,
  maxPending: 4096,
  maxPendingBytes: 64 * 1024 * 1024,
  held: 192,
  roleHeld: 1,
  pulls: 48,
  pullExpiresMs: 2000,
  ackWaitMs: 60_000,
  liveCapacity: 10_000,
  readTimeoutMs: 5000,
  takeTimeoutMs: 2000,
  heartbeatMs: HEARTBEAT_MS,
  probeTimeoutMs: 2000,
};

export type SessionOptions = {
  /** `host:port`; one answers for all of a cluster. */
  readonly servers?: readonly string[];
  /** A join link (§10) in place of `servers` and `space`. */
  readonly link?: string;
  readonly space?: string;
  readonly credentials: SessionCredentials;
  /** The principal one believes to be; a credential of another fails here (§2). */
  readonly principal?: string;
  /** Display name: one line, at most 128 characters. */
  readonly name?: string;
  /** The role to serve: one token, as it is (§3). */
  readonly role?: string;
  readonly card?: CardOptions;
  /** Whether the inbox brings back one's own channel posts; false by default, `history` always has them. */
  readonly ownPosts?: boolean;
  /** Whether to appear in the roster; true by default. */
  readonly presence?: boolean;
  /** Endless by default, with growing waits. */
  readonly reconnect?: ReconnectPolicy;
  readonly tls?: TlsOptions;
  readonly onEvent?: (event: SessionEvent) => void;
  readonly limits?: Partial<Limits>;
  /** Ends the wait for the first connection. */
  readonly signal?: AbortSignal;
};

/** Where to connect, as whom, with which channels a link proposes. */
export type Target = {
  readonly servers: readonly string[];
  readonly tls: TlsOptions | undefined;
  readonly identity: IdentityOptions;
  readonly channels: readonly string[];
};

export function resolveTarget(options: SessionOptions): Target {
  const link = options.link === undefined ? undefined : parseJoinLink(options.link);
  const servers = link === undefined ? options.servers : [link.server];
  if (servers === undefined || servers.length === 0) {
    throw badRequest("no server is named", 'pass servers: ["host:4222"], or a join link');
  }
  if (link !== undefined && options.servers !== undefined) {
    throw badRequest("a join link names the server already", "leave out servers, or the link");
  }
  const tls = options.tls ?? (link?.tls === true ? {} : undefined);
  const space = options.space ?? link?.space;
  return {
    servers,
    tls,
    channels: link?.channels ?? [],
    identity: {
      credentials: withSecret(options.credentials, link),
      ...(space === undefined ? {} : { space }),
      ...(options.principal === undefined ? {} : { principal: options.principal }),
      ...(options.name === undefined ? {} : { name: options.name }),
      ...(options.role === undefined ? {} : { role: options.role }),
    },
  };
}

/** §10: a credential excludes a token and a password. */
function withSecret(credentials: SessionCredentials, link: JoinLink | undefined): SessionCredentials {
  if (link?.secret === undefined) return credentials;
  if (credentials.kind === "open") return { ...credentials, secret: link.secret };
  throw new CotalError(ErrorCode.BadRequest, "the join link carries a secret, and a credential is given too", {
    outcome: Outcome.NotExecuted,
    next: "use the credential with a link that has no secret, or the link alone",
  });
}
