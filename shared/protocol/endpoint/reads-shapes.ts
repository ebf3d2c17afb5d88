/**
 * Shapes of the mediated reads (decision H1): what a client of the space, which reaches no store itself, asks the
 * delivery service to read for it. Every answer is one message, and says where the next page begins.
 */
import { z } from "zod";
import { DIGEST, LIFECYCLE_UID } from "../base/grammar.ts";
import { isChannel, isChannelPattern } from "../base/channels.ts";
import { ChannelConfig, ChannelDefaults } from "../chat/channel-config.ts";
import { MEMBER_KINDS } from "../ledger/record-kinds.ts";

const channel = z.string().refine(isChannel, "not a concrete channel");
const pattern = z.string().refine(isChannelPattern, "not a channel or pattern");
const digest = z.string().regex(DIGEST);
const count = z.int().nonnegative();
const sequence = z.number().int().nonnegative();

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

/** A page of the records of one kind that every member may read (supplement B), as they are stored. */
export const RecordsArgs = z.strictObject({ kind: z.enum(MEMBER_KINDS), cursor: sequence.optional() });
export const RecordsAnswer = z.looseObject({
  /** `revision`: the store's own, as a compare-and-set would need it. `null`: bytes that are no JSON, or too deep. */
  records: z.array(z.looseObject({ key: z.string(), revision: count, value: z.unknown() })),
  /** Absent on the last page. */
  cursor: sequence.optional(),
});
