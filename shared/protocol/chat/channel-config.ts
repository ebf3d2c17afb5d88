/**
 * Channel configuration (§7) and its one effective resolution.
 *
 * Invariant: `effectiveConfig` is the only place that decides replay and delivery class; live join,
 * history, fan-out and membership all call it.
 */
import { z } from "zod";
import { REPLAY_WINDOW } from "../base/grammar.ts";
import { isChannel } from "../base/channels.ts";
import { badRequest } from "../base/errors.ts";

/** Reserved key of the space-wide defaults (§7), and of the space's settings (decision H54). */
export const DEFAULTS_KEY = "=defaults";
export const SPACE_KEY = "=space";

export const DeliveryClass = z.enum(["live", "durable"]);
export type DeliveryClass = z.infer<typeof DeliveryClass>;

export const ChannelConfig = z.looseObject({
  replay: z.boolean().optional(),
  replayWindow: z.string().regex(REPLAY_WINDOW).optional(),
  deliveryClass: DeliveryClass.optional(),
  description: z.string().max(200).optional(),
  instructions: z.string().max(2000).optional(),
});
export type ChannelConfig = z.infer<typeof ChannelConfig>;

export const ChannelDefaults = z.looseObject({
  replay: z.boolean().optional(),
  replayWindow: z.string().regex(REPLAY_WINDOW).optional(),
  deliveryClass: DeliveryClass.optional(),
});
export type ChannelDefaults = z.infer<typeof ChannelDefaults>;

export type EffectiveConfig = {
  readonly replay: boolean;
  /** Milliseconds, or `undefined` for all that is retained. */
  readonly replayWindowMs: number | undefined;
  readonly deliveryClass: DeliveryClass;
};

/** The one resolution (§7): channel, then defaults, then `true` and `durable`. */
export function effectiveConfig(
  channel: ChannelConfig | undefined,
  defaults: ChannelDefaults | undefined,
): EffectiveConfig {
  const window = channel?.replayWindow ?? defaults?.replayWindow;
  return {
    replay: channel?.replay ?? defaults?.replay ?? true,
    replayWindowMs: window === undefined ? undefined : replayWindowMs(window),
    deliveryClass: channel?.deliveryClass ?? defaults?.deliveryClass ?? "durable",
  };
}

/** A longer window is the same as none, and a start time that far back has no date. */
const MAX_WINDOW_MS = 36_500 * 86_400_000;

const UNIT_MS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** `24h` in milliseconds, at most a hundred years. Throws `bad-request` on anything else. */
export function replayWindowMs(text: string): number {
  const match = REPLAY_WINDOW.exec(text);
  if (match === null) {
    throw badRequest(`${JSON.stringify(text.slice(0, 40))} is no window`, "write it like 90s, 30m, 24h or 7d");
  }
  return Math.min(Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS], MAX_WINDOW_MS);
}

/** The registry key of a channel: the concrete channel itself (§7). Wildcards are refused. */
export function registryKey(channel: string): string {
  if (!isChannel(channel)) throw badRequest("a channel's settings are kept under a concrete channel");
  return channel;
}
