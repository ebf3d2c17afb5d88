/** Changing the channel registry (§7). The delivery service reads it to whoever asks. */
import type { z } from "zod";
import { changeJson, unreadable } from "../../shared/broker/json-rows.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  registryKey,
} from "../../shared/protocol/chat/channel-config.ts";
import type { ChannelSetArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";

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
