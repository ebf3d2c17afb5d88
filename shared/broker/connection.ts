/** What a connection is asked with, what it tells, and what its owner holds. Made by `connect.ts`. */
import type { NatsConnection, ServerInfo, TlsOptions } from "@nats-io/transport-node";
import type { CotalError } from "../protocol/base/errors.ts";
import type { Authenticator } from "./authenticator.ts";
import type { Version } from "./floor.ts";
import type { Supply } from "./supply.ts";

export type ReconnectPolicy = {
  readonly baseMs?: number;
  readonly capMs?: number;
  /** How long a connection must have been up for the waits to start over. */
  readonly stableMs?: number;
  /** Refused credentials in a row that end it: 3 for an endless policy, 1 for a bounded one. */
  readonly denials?: number;
} & (
  | { readonly kind: "endless" }
  | { readonly kind: "bounded"; readonly attempts: number }
  /** Dialed so often for its first connection, and never again: who ends it has ended it for good. */
  | { readonly kind: "single"; readonly attempts: number }
);

export type ConnectionStatus =
  | { readonly type: "up"; readonly server: string; readonly version: string }
  /** `expired`: the credential came to its end, as it must; the next one is presented. */
  | { readonly type: "down"; readonly server: string; readonly expired?: true }
  /** A dial failed, and another follows in about `waitMs`. */
  | { readonly type: "retrying"; readonly failures: number; readonly waitMs: number; readonly error?: CotalError }
  /** The broker refused something on this connection: a publish, a subscription, a login. */
  | { readonly type: "refused"; readonly error: CotalError }
  /** The connection stands, and the credential that is to follow its own can't be had yet. */
  | { readonly type: "unrenewed"; readonly error: CotalError; readonly waitMs: number }
  | { readonly type: "slow"; readonly subject: string; readonly pending: number }
  | { readonly type: "closed"; readonly error?: CotalError };

export type ConnectOptions = {
  /** `host:port` or `nats://host:port`, `tls://host:port`. */
  readonly servers: readonly string[];
  readonly authenticator?: Authenticator;
  /**
   * What makes the credential, where that takes time. It is the connection's from here on: closed at its
   * end, and when it can't be opened.
   */
  readonly supply?: Supply;
  readonly inboxPrefix: string;
  /** Shown by the broker's monitoring. Never a secret. */
  readonly name: string;
  readonly tls?: TlsOptions;
  /** Bound of one dial, login included, in milliseconds. */
  readonly timeoutMs?: number;
  readonly reconnect: ReconnectPolicy;
  readonly floor?: Version;
  /** A dead link is noticed after about three of these, in milliseconds. */
  readonly pingMs?: number;
  readonly onStatus?: (status: ConnectionStatus) => void;
  /** Ends the wait for the first connection. */
  readonly signal?: AbortSignal;
  readonly random?: () => number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
};

export type Connection = {
  readonly nc: NatsConnection;
  readonly name: string;
  readonly inboxPrefix: string;
  /** INFO of the server that answered last. */
  readonly info: ServerInfo;
  readonly maxPayload: number;
  readonly version: string;
  readonly isUp: () => boolean;
  /** Waits until the connection is up; `unavailable`, not executed, when it isn't in time. */
  readonly up: (timeoutMs: number) => Promise<void>;
  readonly closed: Promise<CotalError | undefined>;
  /** Ends subscriptions, sends what is pending and closes, all within the bound. */
  readonly drain: (timeoutMs?: number) => Promise<void>;
  readonly close: () => Promise<void>;
};
