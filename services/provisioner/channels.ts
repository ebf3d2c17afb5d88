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
import type { ChannelSetArgs, FrontierArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";
import { changeJson, parseJson, readJson } from "./rows.ts";

/** Registered channels one answer may carry; more are settings that nobody reads. */
const MAX_CHANNELS = 10_000;
const PAGE = 1000;

/** The defaults, and every registered channel that the caller may read. */
export async function channels(context: SpaceContext, caller: Caller) {
  const acl = await context.acl(caller);
  const bucket = context.names.bucket.channels;
  const found: { channel: string; config: ChannelConfig }[] = [];
  let defaults: ChannelDefaults = {};
  let cursor: number | undefined;
  do {
    const page = await rowPage(context.store, bucket, { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    for (const row of page.rows) {
      if (row.kind !== "value" || row.key === SPACE_KEY) continue;
      if (row.key === DEFAULTS_KEY) defaults = ChannelDefaults.safeParse(parseJson(row.data)).data ?? {};
      else if (acl.covers(row.key)) {
        const config = ChannelConfig.safeParse(parseJson(row.data)).data;
        if (config !== undefined) found.push({ channel: row.key, config });
      }
    }
    cursor = page.cursor;
  } while (cursor !== undefined && found.length < MAX_CHANNELS);
  found.sort((a, b) => (a.channel < b.channel ? -1 : 1));
  return { defaults, channels: found.slice(0, MAX_CHANNELS) };
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
    const before = schema.safeParse(current ?? {}).data ?? {};
    const merged = Object.entries({ ...before, ...args.change }).filter(
      ([, value]) => value !== null && value !== undefined,
    );
    return schema.parse(Object.fromEntries(merged));
  });
  return { config: config ?? {} };
}
