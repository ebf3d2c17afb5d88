/** The channel registry (§7): reading it within an ACL, the join watermark, and changing a channel. */
import type { z } from "zod";
import { streamState } from "../../shared/broker/ensure.ts";
import { rowPage } from "../../shared/broker/reads.ts";
import { isConcrete } from "../../shared/protocol/base/channels.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  SPACE_KEY,
  registryKey,
} from "../../shared/protocol/chat/channel-config.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import type { ChannelSetArgs, ChannelsArgs, FrontierArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type SpaceContext, answerRoom } from "./context.ts";
import { changeJson, parseJson, readJson, unreadable } from "./rows.ts";

const PAGE = 1000;
const MAX_BYTES = 400_000;

/** The defaults, and a page of the registered channels that the caller may read. */
export async function channels(context: SpaceContext, caller: Caller, args: z.infer<typeof ChannelsArgs>) {
  const [acl, defaults] = await Promise.all([context.acl(caller), readChannelDefaults(context)]);
  const room = answerRoom(context, MAX_BYTES);
  const found: { channel: string; config: ChannelConfig }[] = [];
  const page = await rowPage(context.store, context.names.bucket.channels, {
    limit: PAGE,
    ...(args.cursor === undefined ? {} : { cursor: args.cursor }),
  });
  let bytes = 0;
  for (const row of page.rows) {
    if (row.kind !== "value" || row.key === SPACE_KEY || row.key === DEFAULTS_KEY || !acl.covers(row.key)) continue;
    const config = ChannelConfig.safeParse(parseJson(row.data)).data;
    if (config === undefined) continue;
    const entry = { channel: row.key, config };
    bytes += Buffer.byteLength(JSON.stringify(entry));
    if (bytes > room && found.length > 0) return { defaults, channels: found, cursor: row.seq };
    found.push(entry);
  }
  return { defaults, channels: found, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

/** The join watermark (§7): taken before the subscription, so nothing falls between. */
export async function frontier(context: SpaceContext, caller: Caller, args: z.infer<typeof FrontierArgs>) {
  const acl = await context.acl(caller);
  acl.demand(args.channel);
  const [{ lastSeq }, defaults, own] = await Promise.all([
    streamState(context.store, context.names.chat),
    readChannelDefaults(context),
    isConcrete(args.channel) ? readConfig(context, args.channel) : undefined,
  ]);
  return { frontier: lastSeq, defaults, ...(own === undefined ? {} : { config: own }) };
}

async function readChannelDefaults({ store, names }: SpaceContext): Promise<ChannelDefaults> {
  const row = await readJson(store, names.bucket.channels, DEFAULTS_KEY);
  return ChannelDefaults.safeParse(row?.value).data ?? {};
}

async function readConfig({ store, names }: SpaceContext, channel: string): Promise<ChannelConfig | undefined> {
  const row = await readJson(store, names.bucket.channels, registryKey(channel));
  return ChannelConfig.safeParse(row?.value).data;
}

/** Changes a channel's settings, or the defaults when no channel is named; `null` removes a field. */
export async function channelSet(context: SpaceContext, args: z.infer<typeof ChannelSetArgs>) {
  const key = args.channel === undefined ? DEFAULTS_KEY : registryKey(args.channel);
  const words = ["description", "instructions"] as const;
  const unfit = args.channel === undefined ? words.find((field) => args.change[field] !== undefined) : undefined;
  if (unfit !== undefined) throw badRequest(`the defaults have no ${unfit}`, "name a channel");
  const schema = args.channel === undefined ? ChannelDefaults : ChannelConfig;
  const place = { bucket: context.names.bucket.channels, key };
  const config = await changeJson(context.store, context.writer, place, (current) => {
    const before = schema.safeParse(current ?? {});
    if (!before.success) throw unreadable(key);
    const merged = Object.entries({ ...before.data, ...args.change }).filter(
      ([, value]) => value !== null && value !== undefined,
    );
    return schema.parse(Object.fromEntries(merged));
  });
  return { config: config ?? {} };
}
