/**
 * The SDK: an agent's session in a space.
 *
 * ```ts
 * const session = await connect({ servers: ["127.0.0.1:4222"], credentials: { kind: "static", file: "alice.creds" } });
 * await session.join("general");
 * await session.send("general", "hello");
 * for await (const item of session.inbox()) console.log(item.kind, item.from.name, item.text);
 * ```
 *
 * Every failure is a `CotalError` with a `code`, what is known of the `outcome`, and what to do next.
 */
export { connect } from "./session.ts";
export type {
  Asked,
  AskedRequest,
  HistoryOptions,
  ListenOptions,
  Me,
  OwnMessage,
  Pending,
  Proofs,
  Sent,
  Session,
  Trace,
  Waiting,
} from "./session-types.ts";
export { DEFAULT_LIMITS, type Limits, type SessionOptions } from "./options.ts";
export type {
  AgentCredentials,
  BearerCredentials,
  Credentials,
  LocalCredentials,
  SessionCredentials,
  UserCredentials,
} from "./identity.ts";
export { type ChatSession, type ChatSessionOptions, openChatSession } from "./chat-session.ts";
export { type DmReader, type DmReaderOptions, openDmReader } from "./dm-reader.ts";
export type { ExchangeAt } from "./exchange.ts";
export type { AgentView, AskedView } from "../protocol/endpoint/exchange-shapes.ts";
export type { Content, MessageOptions } from "./compose.ts";
export type { AskItem, ChatItem, DmItem, InboxItem, Notice } from "./item.ts";
export type { Handler, Handling, Inbox } from "./inbox.ts";
export type { Reach } from "./reach.ts";
export type { JoinOptions, Joined, Replayed } from "./room.ts";
export type { SessionEvent, SessionStats } from "./events.ts";
export type { CardOptions, PresenceChange } from "./presence.ts";
export type { RosterChange, RosterWatch } from "./roster.ts";
export { type ChannelMembers, type ChannelReached, readChannelMembers, readChannelReached } from "./members.ts";
export type { Call, CallResult } from "./caller.ts";
export type { CallTarget } from "./call-target.ts";
export type { CommandOptions, EndpointClient, RepeatOptions, ScatterOptions } from "./endpoint-client.ts";
export type { Expected, InstanceAnswer, Scattered } from "./scatter.ts";
export type { ReconnectPolicy } from "../broker/connect.ts";
export { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
export { Plane } from "../protocol/base/subjects.ts";
export { parseJoinLink, formatJoinLink, type JoinLink } from "../protocol/chat/join-link.ts";
export { type Part, text, verifyArtifact } from "../protocol/chat/parts.ts";
export type { RosterEntry } from "../protocol/chat/presence.ts";
export type { AnycastStatus } from "../protocol/chat/anycast.ts";
export type { TakeCause } from "./take-causes.ts";
export type { LivenessGrade } from "../protocol/chat/liveness.ts";
export type { SpaceSettings } from "../protocol/chat/space-settings.ts";
