/** The surface of a session: what a user holds. */
import type { Principal } from "../protocol/base/principals.ts";
import type { Plane } from "../protocol/base/subjects.ts";
import type { CotalError } from "../protocol/base/errors.ts";
import type { AnycastStatus } from "../protocol/chat/anycast.ts";
import type { LivenessGrade } from "../protocol/chat/liveness.ts";
import type { RosterEntry } from "../protocol/chat/presence.ts";
import type { SpaceSettings } from "../protocol/chat/space-settings.ts";
import type { ChannelConfig, ChannelDefaults } from "../protocol/chat/channel-config.ts";
import type { ProofAnswer } from "../protocol/endpoint/proof-shapes.ts";
import type { Call } from "./caller.ts";
import type { EndpointClient } from "./endpoint-client.ts";
import type { JoinOptions, Joined } from "./room.ts";
import type { Content, MessageOptions } from "./compose.ts";
import type { DurableRail } from "./durable.ts";
import type { SessionEvent, SessionStats } from "./events.ts";
import type { Identity } from "./identity.ts";
import type { Handler, Handling, Inbox } from "./inbox.ts";
import type { InboxItem } from "./item.ts";
import type { PresenceChange } from "./presence.ts";
import type { PullState } from "./pull.ts";
import type { Reach } from "./reach.ts";
import type { RosterChange, RosterWatch } from "./roster.ts";

/** The fact that a send rests on: stored in `stream` at `seq`. */
export type Sent = {
  readonly id: string;
  readonly kind: "chat" | "dm" | "ask";
  readonly stream: string;
  readonly seq: number;
  /** An earlier try of this same send had arrived; there is one copy. */
  readonly duplicate: boolean;
  /** What does not run and must, before a holder can take it: the request is stored and waits. */
  readonly waitsFor?: "delivery";
};

/** A request to a role: what `ask` gave. With its id, never another that the queue stores there by now. */
export type AskedRequest = Pick<Sent, "seq"> & { readonly id?: string };

export type Asked = {
  readonly status: (request: AskedRequest) => Promise<AnycastStatus>;
  /** Takes it back while nobody has taken it; else the answer says who has. */
  readonly cancel: (request: AskedRequest) => Promise<AnycastStatus>;
};

/** A message of one's own: what a send gave. Without its place the newest of one's own are looked through. */
export type OwnMessage = Pick<Sent, "id"> & Partial<Pick<Sent, "kind" | "seq">>;

export type Pending = Extract<ProofAnswer, { readonly about: "inbox" }>;
export type Trace = Extract<ProofAnswer, { readonly about: "message" }>;

export type Proofs = {
  /** What waits for this session's identity, by tier, as the broker counts it now. */
  readonly pending: () => Promise<Pending>;
  /** Where it is: stored, copied, handed out, confirmed. Refused in an open space, as `pending` is. */
  readonly trace: (message: OwnMessage) => Promise<Trace>;
};

export type Waiting = Pick<InboxItem, "kind" | "id" | "from" | "ts"> & {
  readonly channel?: string;
  readonly role?: string;
};

export type ListenOptions = {
  /** Read direct messages; true by default. */
  readonly dm?: boolean;
  /** Read the requests of the own role; true by default. */
  readonly role?: boolean;
  /** Read the copies kept for this member: of durable channels, and of mentions wherever it may read; true by default. */
  readonly durable?: boolean;
};

export type HistoryOptions = {
  /** The last so many; with `sinceMs` or `fromSeq` the first so many from there. */
  readonly limit?: number;
  /** Epoch ms. */
  readonly sinceMs?: number;
  readonly fromSeq?: number;
};

/** Who a session is. */
export type Me = Omit<Identity, "authenticator" | "supply" | "connectionName">;

export type Session = {
  /** Who this session is. */
  readonly me: Me;
  /** Channels that the join link proposed; none is joined by itself. */
  readonly linkChannels: readonly string[];
  /** Resolves at the session's end: with its cause, or with nothing after `drain` or `close`. */
  readonly closed: Promise<CotalError | undefined>;

  /** Posts to a channel. Resolves once it is stored. */
  readonly send: (channel: string, content: Content, options?: MessageOptions) => Promise<Sent>;
  /** Writes to one peer, here or away: `owner.actor`, or the name of a peer in the roster. */
  readonly dm: (who: string, content: Content, options?: MessageOptions) => Promise<Sent>;
  /** Asks a role: one of its holders gets it. */
  readonly ask: (role: string, content: Content, options?: MessageOptions) => Promise<Sent>;
  /** What became of one's own requests to a role (§8.1); refused in an open space, which keeps no record. */
  readonly asked: Asked;
  /** Proof of delivery. */
  readonly proof: Proofs;

  /** Joins a channel or pattern. Resolves once the broker has accepted it (§7). */
  readonly join: (channel: string, options?: JoinOptions) => Promise<Joined>;
  /**
   * Leaves it, its durable membership included; false if it was not joined. Throws where the membership could
   * not be ended: the live part has ended then, and copies go on coming until it is left again.
   */
  readonly leave: (channel: string) => Promise<boolean>;
  readonly joined: () => readonly Omit<Joined, "replayed">[];

  /** Starts to fetch direct messages and role requests; `inbox` and `onItem` do so by themselves. */
  readonly listen: (options?: ListenOptions) => Promise<void>;
  /** Everything addressed to this session, in one iterator. */
  readonly inbox: (options?: ListenOptions) => Inbox;
  /** The same with a handler; an item is acknowledged when its promise resolves. */
  readonly onItem: (handler: Handler, options?: ListenOptions & { readonly concurrency?: number }) => Handling;
  /** Whether the durables answer: an inbox that is `missing` is not an empty one. */
  readonly inboxState: () => Readonly<Record<DurableRail, PullState | "closed">>;

  /** What waits to be read, in that order, without what it says: looking takes and acknowledges nothing. */
  readonly waiting: () => readonly Waiting[];

  /** Reads a channel's history, oldest first, within the read list of the credential. */
  readonly history: (channel: string, options?: HistoryOptions) => Promise<InboxItem[]>;
  readonly space: () => Promise<SpaceSettings>;
  /** The channel registry, read now and within the read list: what is joined, and what only a mention reaches (§4). */
  readonly channels: () => Promise<{
    readonly defaults: ChannelDefaults;
    readonly channels: readonly { readonly channel: string; readonly config: ChannelConfig; readonly reach: Reach }[];
  }>;
  /** Who is here, read now. */
  readonly roster: () => Promise<RosterEntry[]>;
  /** The principal that a name or `owner.actor` stands for; of several, an actor of one's own owner. */
  readonly resolve: (who: string) => Promise<Principal>;
  /** Follows the roster: a snapshot, then changes. */
  readonly watchRoster: (onChange: (change: RosterChange) => void) => RosterWatch;
  /** Reports what this session is doing (§6). */
  readonly setPresence: (change: PresenceChange) => void;
  /** Asks whether a plane is served (§6.1). */
  readonly liveness: (plane: Plane) => Promise<LivenessGrade>;
  /** Calls a command of one of the space's own endpoints (§13). */
  readonly call: Call;
  /** Lists, describes and calls anybody's endpoint, by the contract that it describes (§13.5). */
  readonly endpoints: EndpointClient;

  readonly events: () => AsyncIterableIterator<SessionEvent>;
  readonly stats: () => SessionStats;
  /** Ends in good order within 5 s: no new items, handlers finish, then offline and closed. */
  readonly drain: () => Promise<void>;
  /** Ends at once; what is not acknowledged comes again. */
  readonly close: () => Promise<void>;
};
