/** Arguments of the provisioner's commands: what is bounded, what is closed, and what `null` means. */
import { describe, expect, test } from "vitest";
import type { z } from "zod";
import {
  ChannelSetArgs,
  DeprovisionArgs,
  DeprovisionCompleteArgs,
  LimitsSetArgs,
  MintArgs,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { DmHistoryArgs, FrontierArgs, HistoryArgs, RosterArgs } from "../../shared/protocol/endpoint/reads-shapes.ts";

const mint = {
  profile: "agent",
  owner: "acme",
  actor: "alice",
  name: "Alice",
  userKey: `U${"A".repeat(55)}`,
  subscribe: ["general"],
  allowSubscribe: ["general", "team.>"],
  allowPublish: ["general"],
  role: "reviewer",
};
const UID = "abcdefghijklmnopqrstuvwxyz";

type Case = readonly [string, z.ZodType, unknown];

const TAKES: readonly Case[] = [
  ["a whole mint", MintArgs, mint],
  ["a mint of the least", MintArgs, { profile: "probe", owner: "acme", actor: "a", name: "", userKey: mint.userKey }],
  ["no page", RosterArgs, {}],
  ["a page", RosterArgs, { cursor: 7, limit: 1000, future: 1 }],
  ["a frontier of a pattern", FrontierArgs, { channel: "team.>" }],
  ["history by range", HistoryArgs, { channel: "team.a", fromSeq: 0, upToSeq: 9, limit: 1 }],
  ["history by time", HistoryArgs, { channel: "general", sinceMs: 0.5, last: 1000 }],
  [
    "a change of all fields",
    ChannelSetArgs,
    { channel: "general", change: { replay: false, replayWindow: "1h", deliveryClass: "live" } },
  ],
  [
    "a removal of all fields",
    ChannelSetArgs,
    { change: { replay: null, replayWindow: null, deliveryClass: null, description: null, instructions: null } },
  ],
  ["an empty change", ChannelSetArgs, { change: {} }],
  ["a limit that is none", LimitsSetArgs, { store: "chat", maxAgeSeconds: null, maxPerSubject: 1000 }],
];

const LEAVES: readonly Case[] = [
  ["a mint of a daemon's profile", MintArgs, { ...mint, profile: "provisioner" }],
  ["a mint of the operator", MintArgs, { ...mint, profile: "operator" }],
  ["a mint with an unknown field", MintArgs, { ...mint, admin: true }],
  ["a mint for an actor with a dot", MintArgs, { ...mint, actor: "a.b" }],
  ["a mint for an actor that is a wildcard", MintArgs, { ...mint, actor: "*" }],
  ["a mint with an account's key", MintArgs, { ...mint, userKey: `A${"A".repeat(55)}` }],
  ["a mint with a seed in place of a key", MintArgs, { ...mint, userKey: `SU${"A".repeat(56)}` }],
  ["a mint with half a wildcard", MintArgs, { ...mint, allowSubscribe: ["team*"] }],
  ["a mint with > in the middle", MintArgs, { ...mint, allowPublish: ["a.>.b"] }],
  ["a mint with a channel of 4097 characters", MintArgs, { ...mint, subscribe: ["c".repeat(4097)] }],
  ["a mint of 501 entries", MintArgs, { ...mint, subscribe: Array(501).fill("a") }],
  ["a mint with a role that is a wildcard", MintArgs, { ...mint, role: "*" }],
  ["a page of none", RosterArgs, { limit: 0 }],
  ["a page of 1001", RosterArgs, { limit: 1001 }],
  ["a negative cursor", RosterArgs, { cursor: -1 }],
  ["a page of 501 direct messages", DmHistoryArgs, { limit: 501 }],
  ["history of a pattern", HistoryArgs, { channel: "team.>" }],
  ["history of everything", HistoryArgs, { channel: ">" }],
  ["history without a channel", HistoryArgs, {}],
  ["history from half a sequence", HistoryArgs, { channel: "a", fromSeq: 0.5 }],
  ["history of 1001", HistoryArgs, { channel: "a", last: 1001 }],
  ["settings of a pattern", ChannelSetArgs, { channel: "team.*", change: {} }],
  ["settings under a reserved key", ChannelSetArgs, { channel: "=defaults", change: {} }],
  ["an unknown setting", ChannelSetArgs, { channel: "a", change: { owner: "x" } }],
  ["W7.01 a description of 201", ChannelSetArgs, { channel: "a", change: { description: "d".repeat(201) } }],
  ["W7.01 instructions of 2001", ChannelSetArgs, { channel: "a", change: { instructions: "i".repeat(2001) } }],
  ["W7.01 a window in weeks", ChannelSetArgs, { channel: "a", change: { replayWindow: "1w" } }],
  ["a limit of an unknown store", LimitsSetArgs, { store: "task" }],
  ["a limit as text", LimitsSetArgs, { store: "chat", maxAgeSeconds: "1h" }],
  ["an end with a wildcard", DeprovisionArgs, { owner: "*", actor: "alice" }],
  ["an end with an unknown field", DeprovisionArgs, { owner: "o", actor: "a", force: true }],
  ["an end's second step without a UID", DeprovisionCompleteArgs, { owner: "o", actor: "a", opId: "x" }],
  [
    "an end's second step with a UID that is none",
    DeprovisionCompleteArgs,
    { owner: "o", actor: "a", opId: "x", uid: `${UID}.x` },
  ],
];

describe("W9.04 W7.01 the arguments", () => {
  test.each(TAKES)("%s is taken", (_what, shape, args) => {
    expect(shape.safeParse(args).success).toBe(true);
  });

  test.each(LEAVES)("%s is refused", (_what, shape, args) => {
    expect(shape.safeParse(args).success).toBe(false);
  });
});
