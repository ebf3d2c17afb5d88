/** Shapes of what the provisioner serves: arguments and answers, shared by both sides. */
import { z } from "zod";
import { groupCount } from "../ledger/member-rows.ts";
import { DIGEST, LIFECYCLE_UID, OWNER_LABEL, PRINCIPAL_TOKEN, ROLE_TOKEN, USER_NKEY } from "../base/grammar.ts";
import { isChannel, isChannelPattern } from "../base/channels.ts";
import { ChannelConfig } from "../chat/channel-config.ts";
import { SpaceSettings } from "../chat/space-settings.ts";
import { AskedCapabilities } from "./capabilities.ts";

const channel = z.string().refine(isChannel, "not a concrete channel");
const pattern = z.string().refine(isChannelPattern, "not a channel or pattern");

/** Nothing is asked for: left out, `null`, or an object of which nothing is read. */
export const NoArgs = z.looseObject({}).nullable();
export const Done = z.looseObject({});

export const SpaceAnswer = z.looseObject({ settings: SpaceSettings });

export const MintArgs = z.strictObject({
  profile: z.enum(["agent", "observer", "admin", "channel-writer", "probe"]),
  /** An owner token, or a label to derive one from (decision H48). */
  owner: z.string(),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  name: z.string(),
  userKey: z.string().regex(USER_NKEY),
  subscribe: z.array(pattern).max(500).optional(),
  allowSubscribe: z.array(pattern).max(500).optional(),
  allowPublish: z.array(pattern).max(500).optional(),
  role: z.string().regex(ROLE_TOKEN).optional(),
  /** Of an agent: what it may ask of others' endpoints, and `serve`. */
  capabilities: AskedCapabilities.optional(),
});
export type MintArgs = z.infer<typeof MintArgs>;
export const MintAnswer = z.looseObject({
  jwt: z.string(),
  principal: z.string(),
  uid: z.string(),
  /** Unix seconds. */
  expires: z.number(),
});

export const DeprovisionArgs = z.strictObject({
  /** A token, or the label that it was minted with (decision H48). */
  owner: z.string().regex(OWNER_LABEL),
  actor: z.string().regex(PRINCIPAL_TOKEN),
});
/** User keys to refuse at the broker before the second step. */
export const DeprovisionAnswer = z.looseObject({
  /** `owner.actor`, with the owner's token. */
  principal: z.string(),
  uid: z.string().regex(LIFECYCLE_UID),
  users: z.array(z.string()),
  opId: z.string(),
});
export const DeprovisionCompleteArgs = z.strictObject({
  ...DeprovisionArgs.shape,
  uid: z.string().regex(LIFECYCLE_UID),
  opId: z.string(),
});

export const ChannelSetArgs = z.strictObject({
  /** A concrete channel, or absent for the space's defaults. */
  channel: channel.optional(),
  /** `null` removes a field. */
  change: z.strictObject({
    replay: z.boolean().nullable().optional(),
    replayWindow: ChannelConfig.shape.replayWindow.nullable(),
    deliveryClass: ChannelConfig.shape.deliveryClass.nullable(),
    description: ChannelConfig.shape.description.nullable(),
    instructions: ChannelConfig.shape.instructions.nullable(),
  }),
});
/** Removes the history of one channel. */
export const ChannelPurgeArgs = z.strictObject({ channel });
/** `removed`: posts that are gone. */
export const PurgeAnswer = z.looseObject({ removed: z.number() });

export const ChannelSetAnswer = z.looseObject({ config: ChannelConfig });

/** A history limit (§8): seconds or none, count or none. */
export const HistoryLimit = z.strictObject({
  maxAgeSeconds: z.number().nullable(),
  maxPerSubject: z.number().nullable(),
});
export type HistoryLimit = z.infer<typeof HistoryLimit>;
export const LimitStore = z.enum(["chat", "dm", "delivery"]);
export type LimitStore = z.infer<typeof LimitStore>;
export const LimitsAnswer = z.looseObject({
  chat: HistoryLimit,
  dm: HistoryLimit,
  delivery: HistoryLimit,
});
export const LimitsSetArgs = z.strictObject({
  store: LimitStore,
  maxAgeSeconds: z.number().nullable().optional(),
  maxPerSubject: z.number().nullable().optional(),
});

export const GroupsSetArgs = z.strictObject({ groups: groupCount });
/** What is wanted from now on, and what was before. The delivery service carries it out. */
export const GroupsSetAnswer = z.looseObject({ wanted: groupCount, before: groupCount });

const digest = z.string().regex(DIGEST);
const count = z.int().nonnegative();

/** What a change of a limit would remove now; what is written meanwhile moves it. */
export const LimitsPreviewAnswer = z.looseObject({
  store: LimitStore,
  /** The limit as it is, and as it would be. */
  before: HistoryLimit,
  after: HistoryLimit,
  /** Messages, in all, and subjects that lose some. */
  messages: count,
  subjects: count,
  /**
   * Where most are removed first, a bounded number of them. `of` is what tells a subject apart: for copies the
   * member's `owner.actor.uid`, for chat the sender and the channel, for direct messages the receiver and the sender.
   */
  most: z.array(z.looseObject({ of: z.string(), messages: count, kept: count })),
  /** Not: there was more to look at than one answer does, and the numbers are the least. */
  whole: z.boolean(),
});
export type LimitsPreviewAnswer = z.infer<typeof LimitsPreviewAnswer>;

/** A daemon of this project tells of its own instance; its contract stands in the source. */
export const OwnRegisterArgs = z.strictObject({
  endpoint: z.string(),
  instanceId: z.string().regex(LIFECYCLE_UID),
  epoch: count,
  state: z.enum(["ready", "stopped"]),
});

/** Somebody else's instance registers with its contract, and takes over its predecessor if it names it. */
export const ServiceRegisterArgs = z.strictObject({
  endpoint: z.string(),
  instanceId: z.string().regex(LIFECYCLE_UID).optional(),
  /** The public key that will serve; the seed stays with the caller. */
  userKey: z.string().regex(USER_NKEY),
  clusterDigests: z.array(digest).min(1).max(16),
  /** Texts of every artifact of the contract that may not be published yet, each once. */
  artifacts: z.array(z.string()).max(1024),
});
export type ServiceRegisterArgs = z.infer<typeof ServiceRegisterArgs>;

/** An instance that serves asks for a credential that lives on. */
export const ServiceRenewArgs = z.strictObject({
  endpoint: z.string(),
  instanceId: z.string().regex(LIFECYCLE_UID),
  epoch: count.min(1),
  userKey: z.string().regex(USER_NKEY),
});
export type ServiceRenewArgs = z.infer<typeof ServiceRenewArgs>;

export const RegisterArgs = z.union([OwnRegisterArgs, ServiceRegisterArgs, ServiceRenewArgs]);
export type RegisterArgs = z.infer<typeof RegisterArgs>;

/** What an instance serves with; an open space has no credentials. */
export const ServeCredential = z.looseObject({
  jwt: z.string(),
  /** `_INBOX_<instanceId>_<nonce>` is the connection's own inbox. */
  inboxNonce: z.string(),
  /** Unix seconds. */
  expires: count,
});
export type ServeCredential = z.infer<typeof ServeCredential>;

export const RegisterAnswer = z.looseObject({
  registrationRevision: count,
  instanceId: z.string().regex(LIFECYCLE_UID),
  epoch: count,
  credential: ServeCredential.optional(),
});
export type RegisterAnswer = z.infer<typeof RegisterAnswer>;

/** The operator gives a name to an owner, for good. */
export const EndpointAssignArgs = z.strictObject({
  endpoint: z.string(),
  /** The owner token; in a space with static credentials also the label that its agents are minted under. */
  owner: z.string().min(1).max(128),
});
export const EndpointAssignAnswer = z.looseObject({ endpoint: z.string(), owner: z.string() });

/** One finding of a check: what is wrong, and what to do. */
export const Finding = z.looseObject({
  check: z.string(),
  level: z.enum(["error", "warning"]),
  message: z.string(),
  next: z.string(),
});
export type Finding = z.infer<typeof Finding>;
/** The check of who writes the copies of a member group: no finding while the delivery service is only starting. */
export const GROUP_CHECK = "member group";
export const CheckAnswer = z.looseObject({
  findings: z.array(Finding),
  /** Broker's clock minus this daemon's, milliseconds. */
  clockSkewMs: z.number(),
  checked: z.array(z.string()),
});
