/**
 * Shapes of what the provisioner serves on the first rail: arguments and answers, shared by both
 * sides. Contracts and `describe` come with the endpoint surface; the names stay.
 */
import { z } from "zod";
import { DIGEST, LIFECYCLE_UID, OWNER_LABEL, PRINCIPAL_TOKEN, ROLE_TOKEN, USER_NKEY } from "../base/grammar.ts";
import { isChannel, isChannelPattern } from "../base/channels.ts";
import { ChannelConfig, ChannelDefaults } from "../chat/channel-config.ts";
import { SpaceSettings } from "../chat/space-settings.ts";
import { AskedCapabilities } from "./capabilities.ts";

const channel = z.string().refine(isChannel, "not a concrete channel");
const pattern = z.string().refine(isChannelPattern, "not a channel or pattern");
const sequence = z.number().int().nonnegative();

/** Nothing is asked for: left out, `null`, or an object of which nothing is read. */
export const NoArgs = z.looseObject({}).nullable();
export const Done = z.looseObject({});

export const SpaceAnswer = z.looseObject({ settings: SpaceSettings });

/** A page of the registry, in the order of the last changes. */
export const ChannelsArgs = z.looseObject({ cursor: sequence.optional() });
export const ChannelsAnswer = z.looseObject({
  defaults: ChannelDefaults,
  channels: z.array(z.looseObject({ channel: z.string(), config: ChannelConfig })),
  /** Absent on the last page. */
  cursor: sequence.optional(),
});

/** A page of presence records as stored; the reader applies §6's rules itself. */
export const RosterArgs = z.looseObject({
  cursor: sequence.optional(),
  limit: z.number().int().min(1).max(1000).optional(),
});
export const RosterAnswer = z.looseObject({
  records: z.array(z.looseObject({ key: z.string(), value: z.unknown() })),
  /** Absent on the last page. */
  cursor: sequence.optional(),
});

/** The join watermark (§7), with the channel's settings as they are now. */
export const FrontierArgs = z.looseObject({ channel: pattern });
export const FrontierAnswer = z.looseObject({
  /** Last sequence of CHAT. */
  frontier: sequence,
  config: ChannelConfig.optional(),
  defaults: ChannelDefaults,
});

/**
 * History of one channel: forward from `fromSeq` (or `sinceMs`, epoch ms) up to `upToSeq`, or the
 * last `last` messages.
 */
export const HistoryArgs = z.looseObject({
  channel,
  fromSeq: sequence.optional(),
  sinceMs: z.number().nonnegative().optional(),
  upToSeq: sequence.optional(),
  limit: z.number().int().min(1).max(1000).optional(),
  last: z.number().int().min(1).max(1000).optional(),
});
export const StoredMessage = z.looseObject({
  seq: sequence,
  /** When the broker stored it, epoch ms. */
  storedAt: z.number(),
  subject: z.string(),
  /** UTF-8 text of the payload as it was published. */
  data: z.string(),
  headers: z.array(z.string()).optional(),
});
export const HistoryAnswer = z.looseObject({
  messages: z.array(StoredMessage),
  /** Where the next page begins; absent when the range is read to its end. */
  nextSeq: sequence.optional(),
  /** The older ones of the asked-for `last` messages did not fit; ask again with this as `upToSeq`. */
  olderUpToSeq: sequence.optional(),
  /** Messages of the range whose bytes are no UTF-8 text; skipped. */
  unreadable: z.number().int().optional(),
});

/** Direct messages of the whole space, for an admin. */
export const DmHistoryArgs = z.looseObject({
  fromSeq: sequence.optional(),
  limit: z.number().int().min(1).max(500).optional(),
});

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

const digest = z.string().regex(DIGEST);
const count = z.int().nonnegative();

/** Artifacts of contracts (supplement A), as they are published; whoever asks checks them by their digests. */
export const ArtifactsArgs = z.strictObject({ digests: z.array(digest).min(1).max(32) });
export const ArtifactsAnswer = z.looseObject({
  /** `text`: the document in its canonical form, whose UTF-8 bytes have the digest. */
  artifacts: z.array(z.looseObject({ digest, text: z.string() })),
  /** Nothing is published under these. */
  missing: z.array(digest),
  /** These did not fit; ask again for them. */
  left: z.array(digest).optional(),
});

/** A page of the instances that serve, from their service records. */
export const EndpointsArgs = z.looseObject({ cursor: sequence.optional() });
export const ShownEndpoint = z.looseObject({
  endpoint: z.string(),
  instanceId: z.string().regex(LIFECYCLE_UID),
  /** Owner token of whoever registered it. */
  owner: z.string(),
  registrationRevision: count,
  clusterDigests: z.array(digest),
  protocol: z.looseObject({ v: count }),
  /** As it last said; absent before it has said anything. */
  epoch: count.optional(),
  state: z.string().optional(),
});
export type ShownEndpoint = z.infer<typeof ShownEndpoint>;
export const EndpointsAnswer = z.looseObject({
  endpoints: z.array(ShownEndpoint),
  /** Absent on the last page. */
  cursor: sequence.optional(),
});

/** A daemon that serves an endpoint of its own tells of its instance (supplement A, service record). */
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
