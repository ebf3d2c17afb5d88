/** What taking a space up is given, and how each of its connections is dialled. */
import type { ConnectOptions, Connection, ConnectionStatus } from "../../shared/broker/connect.ts";
import type { OwnCredential, OwnUsers } from "../../shared/broker/own-credential.ts";
import { type SpaceHooks, lastingDial } from "../../shared/daemon/spaces.ts";
import type { ServedEvent } from "../../shared/serve/serve.ts";
import type { RecordWriterHooks } from "./record-writer.ts";

export type OpenSpaceOptions = RecordWriterHooks & {
  readonly space: string;
  readonly servers: readonly string[];
  readonly mode: "accounts" | "open";
  readonly keysPattern: string;
  readonly replicas: 1 | 3;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  readonly onStatus: (connection: string, status: ConnectionStatus) => void;
  readonly waiting: SpaceHooks["waiting"];
  /** Ends the wait for a broker that is not there. */
  readonly signal: AbortSignal;
  readonly users: OwnUsers;
  /** Life of the credentials that others serve with, in seconds. */
  readonly serveSeconds?: number;
  /** Life of this process's own credentials, in seconds. */
  readonly lifeSeconds?: number;
};

export type Dialed = Pick<ConnectOptions, "authenticator" | "inboxPrefix">;
export type Dial = (name: string, own: Dialed) => Promise<Connection>;

export const nowSeconds = (): number => Math.floor(Date.now() / 1000);

export const identityOf = ({ authenticator, inboxPrefix }: OwnCredential): Dialed => ({ authenticator, inboxPrefix });

export const dialOptions = (options: OpenSpaceOptions, name: string) => lastingDial("provisioner", options, name);
