/** Channel configuration: its bounds, its key, and the one effective resolution as a whole table. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  SPACE_KEY,
  effectiveConfig,
  registryKey,
  replayWindowMs,
} from "../../shared/protocol/chat/channel-config.ts";
import { isChannelPattern } from "../../shared/protocol/base/channels.ts";
import { channels } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

describe("W7.01 the bounds of an entry", () => {
  test.each([
    {},
    { replay: false },
    { replayWindow: "24h", deliveryClass: "live", description: "d".repeat(200), instructions: "i".repeat(2000) },
    { future: { any: 1 } },
  ])("%j is one", (entry) => {
    expect(ChannelConfig.safeParse(entry).success).toBe(true);
  });

  test.each([
    { replay: "yes" },
    { replay: null },
    { replayWindow: "1w" },
    { replayWindow: "24h\n" },
    { replayWindow: "-1s" },
    { replayWindow: 24 },
    { deliveryClass: "Durable" },
    { description: "d".repeat(201) },
    { instructions: "i".repeat(2001) },
    [],
    null,
  ])("%j is none", (entry) => {
    expect(ChannelConfig.safeParse(entry).success).toBe(false);
  });

  test("a wildcard, the reserved keys and what is no channel are no registry keys", () => {
    for (const key of ["team.>", "*", ">", "a.*", "", "a..b", "a b", DEFAULTS_KEY, SPACE_KEY]) {
      expect(refusal(() => registryKey(key)).code).toBe("bad-request");
    }
    fc.assert(fc.property(channels, (channel) => registryKey(channel) === channel));
  });

  test("W7.02 no channel can be called like a reserved key", () => {
    expect([DEFAULTS_KEY, SPACE_KEY]).toEqual(["=defaults", "=space"]);
    expect([DEFAULTS_KEY, SPACE_KEY].filter(isChannelPattern)).toEqual([]);
    expect(ChannelDefaults.safeParse({ deliveryClass: "durable" }).success).toBe(true);
  });
});

describe("W7.01 a replay window in milliseconds", () => {
  test.each([
    ["0s", 0],
    ["90s", 90_000],
    ["30m", 1_800_000],
    ["24h", 86_400_000],
    ["7d", 604_800_000],
    ["36500d", 3_153_600_000_000],
    ["999999999d", 3_153_600_000_000],
    ["999999999h", 3_153_600_000_000],
  ])("%s is %d", (text, ms) => {
    expect(replayWindowMs(text)).toBe(ms);
    expect(new Date(Date.now() - ms).getTime()).not.toBeNaN();
  });

  test.each(["", "h", "24", "1w", "1H", "1.5h", " 1h", "1h ", "1 h", "١h", "0x1s"])("%j is none", (text) => {
    expect(refusal(() => replayWindowMs(text)).code).toBe("bad-request");
  });
});

describe("W7.03 the one effective resolution: channel, then defaults, then true and durable", () => {
  const replays = [undefined, true, false] as const;
  const windows = [undefined, "10s", "2m"] as const;
  const classes = [undefined, "live", "durable"] as const;
  const ms = { "10s": 10_000, "2m": 120_000 } as const;
  const rows = replays.flatMap((a) => replays.map((b) => ({ channel: a, space: b, replay: a ?? b ?? true })));

  test.each(rows)("replay $channel over $space is $replay", ({ channel, space, replay }) => {
    expect(effectiveConfig({ replay: channel }, { replay: space }).replay).toBe(replay);
  });

  test.each(windows.flatMap((a) => windows.map((b) => ({ channel: a, space: b, window: a ?? b }))))(
    "window $channel over $space is $window",
    ({ channel, space, window }) => {
      const resolved = effectiveConfig({ replayWindow: channel }, { replayWindow: space });
      expect(resolved.replayWindowMs).toBe(window === undefined ? undefined : ms[window]);
    },
  );

  test.each(classes.flatMap((a) => classes.map((b) => ({ channel: a, space: b, result: a ?? b ?? "durable" }))))(
    "class $channel over $space is $result",
    ({ channel, space, result }) => {
      expect(effectiveConfig({ deliveryClass: channel }, { deliveryClass: space }).deliveryClass).toBe(result);
    },
  );

  test("without any entry", () => {
    expect(effectiveConfig(undefined, undefined)).toEqual({
      replay: true,
      replayWindowMs: undefined,
      deliveryClass: "durable",
    });
  });

  test("each field is resolved by itself", () => {
    expect(effectiveConfig({ replay: false }, { replay: true, replayWindow: "10s", deliveryClass: "live" })).toEqual({
      replay: false,
      replayWindowMs: 10_000,
      deliveryClass: "live",
    });
  });
});
