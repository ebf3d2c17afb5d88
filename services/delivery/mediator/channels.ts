/** The channel registry (§7), read within the caller's list; and the watermark that a join begins with. */
import type { z } from "zod";
import { streamState } from "../../../shared/broker/ensure.ts";
import { readJson } from "../../../shared/broker/json-rows.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { rowPage } from "../../../shared/broker/reads.ts";
import { isConcrete } from "../../../shared/protocol/base/channels.ts";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  SPACE_KEY,
  registryKey,
} from "../../../shared/protocol/chat/channel-config.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { ChannelsArgs, FrontierArgs } from "../../../shared/protocol/endpoint/reads-shapes.ts";
import type { Mediator } from "./mediator.ts";
import { SNAPSHOT_BYTES, answerRoom } from "./room.ts";

const PAGE = 1000;

/** The defaults, and a page of the registered channels that the caller may read. */
export async function channels(mediator: Mediator, caller: Caller, args: z.infer<typeof ChannelsArgs>) {
  const [acl, defaults] = await Promise.all([mediator.acl(caller), readDefaults(mediator)]);
  const room = answerRoom(mediator, SNAPSHOT_BYTES);
  const found: { channel: string; config: ChannelConfig }[] = [];
  const page = await rowPage(mediator.store, mediator.names.bucket.channels, {
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
export async function frontier(mediator: Mediator, caller: Caller, args: z.infer<typeof FrontierArgs>) {
  const acl = await mediator.acl(caller);
  acl.demand(args.channel);
  const [{ lastSeq }, defaults, own] = await Promise.all([
    streamState(mediator.store, mediator.names.chat),
    readDefaults(mediator),
    isConcrete(args.channel) ? readConfig(mediator, args.channel) : undefined,
  ]);
  return { frontier: lastSeq, defaults, ...(own === undefined ? {} : { config: own }) };
}

async function readDefaults({ store, names }: Mediator): Promise<ChannelDefaults> {
  const row = await readJson(store, names.bucket.channels, DEFAULTS_KEY);
  return ChannelDefaults.safeParse(row?.value).data ?? {};
}

async function readConfig({ store, names }: Mediator, channel: string): Promise<ChannelConfig | undefined> {
  const row = await readJson(store, names.bucket.channels, registryKey(channel));
  return ChannelConfig.safeParse(row?.value).data;
}
