/** What taking a space up is given, what it hands back, and how each of its connections is dialled. */
import type { ConnectOptions, Connection, ConnectionStatus } from "../../shared/broker/connect.ts";
import type { OwnUsers } from "../../shared/broker/own-credential.ts";
import { type KeptSpace, type SpaceHooks, lastingDial } from "../../shared/daemon/spaces.ts";
import type { ServedEvent } from "../../shared/serve/serve.ts";
import type { AnycastEvent } from "./anycast/anycast.ts";
import type { GroupEvent } from "./fanout/groups.ts";
import type { FeedEvent } from "./feed/feed.ts";
import type { OpenOracleOptions } from "./oracle/open-oracle.ts";

export type PlaneEvent = { readonly kind: "dropped"; readonly why: string };

export type OpenSpaceOptions = SpaceHooks &
  OpenOracleOptions & {
    readonly servers: readonly string[];
    readonly mode: "accounts" | "open";
    readonly keysPattern: string;
    readonly users: OwnUsers;
    readonly concurrency: number;
    readonly perCaller: number;
    readonly membershipMs: number;
    readonly onServed: (event: ServedEvent) => void;
    readonly onAnycast: (event: AnycastEvent) => void;
    /** Of the plane's liveness: a question that was dropped. */
    readonly onPlane: (event: PlaneEvent) => void;
    readonly onGroup: (event: GroupEvent) => void;
    readonly onFeed: (event: FeedEvent) => void;
    /** When the first of the credentials of the system account ends, and what time it is, in Unix seconds. */
    readonly onSystemEnd: (at: number, now: number) => void;
    /** Life of this process's own credential, in seconds. */
    readonly lifeSeconds?: number;
  };

export type OpenSpace = KeptSpace & { readonly principal: string; readonly epoch: number };

/** What serves a space; its end, and that of its connections, is `open-space.ts`'s. */
export type ServedSpace = Omit<OpenSpace, "broken" | "close">;

/** What a connection is opened as; without an authenticator where a broker is open. */
type Dialed = Pick<ConnectOptions, "authenticator" | "inboxPrefix">;

export type Dial = (name: string, own: Dialed, onStatus?: (status: ConnectionStatus) => void) => Promise<Connection>;

export type Dials = {
  /** Its end is the end of the space. */
  readonly dial: Dial;
  /** One whose end does not end the space: who asks for it ends it. */
  readonly alone: Dial;
};

/** What must end before its connections do; whoever starts one pushes its stop. */
export type Running = (() => Promise<void>)[];

export const nowSeconds = (): number => Math.floor(Date.now() / 1000);

export const dialOptions = (options: OpenSpaceOptions, name: string) => lastingDial("delivery", options, name);
