/**
 * Every parser of the protocol, fed with noise and with near misses: it returns, or it refuses with an
 * error of ours. A parser that hangs runs into the test's own limit of time.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import * as acks from "../../shared/protocol/base/broker-subjects.ts";
import * as canonical from "../../shared/protocol/base/canonical.ts";
import * as channels from "../../shared/protocol/base/channels.ts";
import * as principals from "../../shared/protocol/base/principals.ts";
import * as subjects from "../../shared/protocol/base/subjects.ts";
import { channelLists } from "../../shared/protocol/chat/acl-lists.ts";
import * as anycast from "../../shared/protocol/chat/anycast.ts";
import * as config from "../../shared/protocol/chat/channel-config.ts";
import { parseJoinLink } from "../../shared/protocol/chat/join-link.ts";
import { gradeLiveness, LivenessAnswer } from "../../shared/protocol/chat/liveness.ts";
import { type CotalMessage, checkMessage, readDelivery } from "../../shared/protocol/chat/message.ts";
import { checkParts } from "../../shared/protocol/chat/parts.ts";
import { checkMeta, checkName, Presence, readPresence } from "../../shared/protocol/chat/presence.ts";
import { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import * as endpoint from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointEvent, EndpointReply, EndpointRequest } from "../../shared/protocol/endpoint/envelope.ts";
import { parsePlaneSubject } from "../../shared/protocol/endpoint/planes.ts";
import * as shapes from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import * as rows from "../../shared/protocol/ledger/rows.ts";
import { expectTotal, nearMiss, nearMissBytes, nearMissText } from "../support/near-miss.ts";

const UID = "abcdefghijklmnopqrstuvwxyz";
const NONCE = "0123456789abcdefghij_-";
const ME = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";

const TEXTS = [
  `cotal.main.chat.${ME}.team.backend`,
  `cotal.main.inst.local.b.${ME}`,
  `cotal.main.svc.reviewer.${ME}`,
  `cotal.main.live.manager.${ME}`,
  `cotal.main.ep.one.provisioner.history.${ME}.${UID}.${NONCE}`,
  `cotal.main.ep.reply.provisioner.${UID}.1.${ME}.${UID}.${NONCE}`,
  "$JS.ACK.DM_main.dm_x.2.30.4.1700000000000000000.5",
  "cotal://tok@host:4222/main?channel=a,b",
  "#team.backend",
  "team.>",
  "24h",
  ME,
  `${UID}_${"a".repeat(22)}`,
];

/** Each takes any text: from a person, a file, a subject, a header. */
const TEXT_PARSERS: Readonly<Record<string, (text: string) => unknown>> = {
  parseSubject: subjects.parseSubject,
  isSurfaceable: (text) => {
    const split = subjects.parseSubject(text);
    return split !== undefined && subjects.isSurfaceable(split);
  },
  parseTake: subjects.parseTake,
  isReplyUnder: (text) => subjects.isReplyUnder(text, `${text}.reply.x`),
  isReservedSubject: subjects.isReservedSubject,
  spaceToken: subjects.spaceToken,
  spaceSubjects: (text) => subjects.spaceSubjects("main").chatRead(text),
  parseRequestSubject: endpoint.parseRequestSubject,
  parseReplySubject: endpoint.parseReplySubject,
  parsePlaneSubject,
  endpointToken: endpoint.endpointToken,
  endpointName: endpoint.endpointName,
  parseAck: acks.parseAck,
  kvKeyOf: (text) => acks.kvKeyOf("b", text),
  concreteChannel: channels.concreteChannel,
  channelPattern: channels.channelPattern,
  isChannel: channels.isChannel,
  isChannelPattern: channels.isChannelPattern,
  isFamily: channels.isFamily,
  matches: (text) => channels.matches(text, text),
  contains: (text) => channels.contains(text, text),
  channelLists: (text) => channelLists({ subscribe: [text] }),
  parseDotForm: principals.parseDotForm,
  parseDashForm: principals.parseDashForm,
  principal: (text) => principals.principal(text, text),
  isOwnerToken: principals.isOwnerToken,
  connId: (text) => principals.connId(UID, text),
  parseJoinLink,
  replayWindowMs: config.replayWindowMs,
  registryKey: config.registryKey,
  checkName,
  epochToken: anycast.epochToken,
  digestOf: canonical.digestOf,
  canonicalJson: canonical.canonicalJson,
};

describe("W3.03 W4.11 text never does more than be refused", () => {
  test.each(Object.entries(TEXT_PARSERS))("%s", (_name, parse) => {
    fc.assert(
      fc.property(nearMissText(TEXTS), (text) => expectTotal(() => parse(text))),
      { numRuns: 400 },
    );
  });

  test("nor does a megabyte of it", () => {
    const long = [".", "a", "a.", "*", ">", "%", "@", ":", "/", "\u0000", "😀", " "].map((piece) =>
      piece.repeat(1_000_000),
    );
    for (const parse of Object.values(TEXT_PARSERS)) {
      for (const text of [
        ...long,
        ...long.map((tail) => `cotal://${tail}`),
        ...long.map((tail) => `cotal.main.chat.${tail}`),
      ]) {
        expectTotal(() => parse(text));
      }
    }
    expect(Object.keys(TEXT_PARSERS).length).toBeGreaterThan(30);
  });
});

const message: CotalMessage = {
  id: "1",
  ts: 0,
  space: "main",
  from: { id: ME, name: "alice", role: "planner" },
  channel: "team.backend",
  mentions: ["bob"],
  parts: [
    { kind: "text", text: "hi" },
    { kind: "data", data: { a: [1] } },
  ],
  replyTo: "0",
};
const presence = {
  card: { id: ME, name: "alice", kind: "agent", skills: [{ id: "s", name: "s" }], meta: { model: "m" } },
  status: "idle",
  condition: { code: "auth" },
  runtime: { id: "r", startedAt: 0, source: "endpoint-process" },
  channelModes: { general: "muted" },
  ts: 0,
};
const request = {
  v: 1,
  id: "r1",
  op: { endpoint: "provisioner", command: "history" },
  class: "ephemeral",
  replyExpected: true,
  from: { id: ME, name: "alice" },
};
const op = { opId: "o", kind: "takeover" };
const VALUES: readonly unknown[] = [
  message,
  presence,
  request,
  { v: 1, id: "r1", ok: false, error: { code: "conflict", message: "x", details: [{ kind: "a.b" }] } },
  { plane: "manager", responder: "bound", instance: "i" },
  { from: { id: ME, name: "a" }, seq: 1, id: "m", count: 1, epoch: "e" },
  { state: "frozen", generation: 1, op },
  { replay: true, replayWindow: "1h", deliveryClass: "live" },
  { profile: "agent", owner: "acme", actor: "a", name: "n", userKey: `U${"A".repeat(55)}`, subscribe: ["team.>"] },
];

/** Every Zod shape that a module of the protocol exports. */
const shapesOf = (module: object): [string, z.ZodType][] =>
  Object.entries(module).flatMap(([name, value]): [string, z.ZodType][] =>
    value instanceof z.ZodType ? [[name, value]] : [],
  );

const SHAPES = Object.fromEntries([
  ...shapesOf(anycast),
  ...shapesOf(config),
  ...shapesOf(shapes),
  ...shapesOf(rows),
  ...shapesOf({ LivenessAnswer, Presence, SpaceSettings, EndpointRequest, EndpointReply, EndpointEvent }),
]);

const VALUE_PARSERS: Readonly<Record<string, (value: unknown) => unknown>> = {
  readPresence: (value) => readPresence(ME, value, 0),
  checkMessage: (value) =>
    checkMessage({ ...message, ...(typeof value === "object" ? value : { parts: value }) } as CotalMessage),
  checkParts: (value) => checkParts([value]),
  checkMeta: (value) => checkMeta({ "com.acme.x": value, ...(typeof value === "object" ? value : {}) }),
  nonJsonPath: (value) => canonical.nonJsonPath(value, "value"),
  isBounded: (value) => canonical.isBounded(value),
  canonicalDigest: canonical.canonicalDigest,
};

describe("W6.13 W4.11 values never do more than be refused", () => {
  test.each(Object.entries(VALUE_PARSERS))("%s", (_name, parse) => {
    fc.assert(
      fc.property(nearMiss(VALUES), (value) => expectTotal(() => parse(value))),
      { numRuns: 500 },
    );
  });

  test.each(Object.entries(SHAPES))("the shape %s", (_name, shape) => {
    fc.assert(
      fc.property(nearMiss(VALUES), (value) => {
        expect(typeof shape.safeParse(value).success).toBe("boolean");
      }),
      { numRuns: 200 },
    );
  });

  test("the shapes are the ones that exist", () => {
    expect(Object.keys(SHAPES)).toEqual(
      expect.arrayContaining(["MintArgs", "HeadRow", "TakeRequest", "ChannelConfig"]),
    );
  });
});

describe("W4.11 bytes never do more than be refused", () => {
  const names = fc.array(fc.constantFrom("Nats-Msg-Id", "nats-subject", "x"), { maxLength: 2 });
  test("readDelivery", () => {
    fc.assert(
      fc.property(nearMissText(TEXTS.slice(0, 3)), nearMissBytes(VALUES), names, (subject, payload, headerNames) => {
        expect(typeof readDelivery(subject, payload, headerNames).ok).toBe("boolean");
        expect(typeof readDelivery(TEXTS[0] ?? "", payload).ok).toBe("boolean");
      }),
      { numRuns: 2000 },
    );
  });

  test("gradeLiveness", () => {
    fc.assert(
      fc.property(nearMissBytes(VALUES), (payload) => {
        expect(["bound", "unbound", "stale", "unknown"]).toContain(
          gradeLiveness("manager", { kind: "reply", payload }).responder,
        );
      }),
      { numRuns: 500 },
    );
  });
});
