/** The subject table: vectors of §12, builders against the parser, and what a builder refuses. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isChannel } from "../../shared/protocol/base/channels.ts";
import { type Principal } from "../../shared/protocol/base/principals.ts";
import {
  LIVE_QUEUE,
  Plane,
  type DeliverySubject,
  isReplyUnder,
  isReservedSubject,
  isSurfaceable,
  parseSubject,
  parseTake,
  spaceSubjects,
  spaceToken,
} from "../../shared/protocol/base/subjects.ts";
import { channels, principals, roles, spaces } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

type Vector = {
  readonly from: string;
  readonly subject: string;
  readonly parse: DeliverySubject | null;
  readonly surfaced: boolean;
};

const { vectors } = JSON.parse(readFileSync(join(import.meta.dirname, "..", "vectors", "subjects.json"), "utf8")) as {
  vectors: Vector[];
};

const alice: Principal = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
const bob: Principal = { owner: "u_bbbbbbbbbbbbbbbbbbbbbbbbbb", actor: "bob" };
const UID = "abcdefghijklmnopqrstuvwxyz";
const NONCE = "0123456789abcdefghij_-";
const main = spaceSubjects("main");

describe("W12.02 W3.03 W3.04 the vector file", () => {
  test("it holds the six rows of §12", () => {
    expect(vectors.filter(({ from }) => from === "§12")).toHaveLength(6);
  });

  test.each(vectors)("$from: $subject", ({ subject, parse, surfaced }) => {
    const split = parseSubject(subject);
    expect(split).toEqual(parse ?? undefined);
    expect(split !== undefined && isSurfaceable(split)).toBe(surfaced);
  });
});

test("W3.01 the delivery builders spell the table of §3", () => {
  expect(main.chat(alice, "team.backend")).toBe("cotal.main.chat.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice.team.backend");
  expect(main.inst(bob, alice)).toBe(
    "cotal.main.inst.u_bbbbbbbbbbbbbbbbbbbbbbbbbb.bob.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice",
  );
  expect(main.svc("reviewer", alice)).toBe("cotal.main.svc.reviewer.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice");
  expect(main.take("reviewer", alice)).toBe("cotal.main.take.reviewer.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice");
  expect(main.live(Plane.Delivery, alice)).toBe("cotal.main.live.delivery.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice");
});

test("W3.01 grants and filters leave free only what is another's", () => {
  const me = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
  expect(main.chatGrant(alice, "team.>")).toBe(`cotal.main.chat.${me}.team.>`);
  expect(main.chatRead("team.*")).toBe("cotal.main.chat.*.*.team.*");
  expect(main.instGrant(alice)).toBe(`cotal.main.inst.*.*.${me}`);
  expect(main.instTo(alice)).toBe(`cotal.main.inst.${me}.>`);
  expect(main.svcGrant(alice)).toBe(`cotal.main.svc.*.${me}`);
  expect(main.svcTo("reviewer")).toBe("cotal.main.svc.reviewer.>");
  expect(main.takeReplies("reviewer", alice)).toBe(`cotal.main.take.reviewer.${me}.reply.*`);
  expect(main.takeServe).toBe("cotal.main.take.*.*.*");
  expect(main.takeServeReply).toBe("cotal.main.take.*.*.*.reply.*");
  expect(main.liveReplies(Plane.Manager, alice)).toBe(`cotal.main.live.manager.${me}.>`);
  expect(main.liveServe(Plane.Manager)).toBe("cotal.main.live.manager.*.*");
  expect(main.liveServeReply(Plane.Manager)).toBe("cotal.main.live.manager.*.*.reply.>");
  expect(LIVE_QUEUE(Plane.Manager)).toBe("live.manager");
  expect(main.dlv(alice, UID)).toBe(`cotal.main.dlv.${me}.${UID}`);
  expect(main.dlvMarker(3)).toBe("cotal.main.dlvpos.3");
});

test("W3.01 whatever is built is split back into what it was built from", () => {
  fc.assert(
    fc.property(spaces, principals, principals, channels, roles, (space, me, other, channel, role) => {
      const built = spaceSubjects(space);
      const sender = `${me.owner}.${me.actor}`;
      const base = { space, owner: me.owner, actor: me.actor, sender };
      expect(parseSubject(built.chat(me, channel))).toEqual({ ...base, kind: "chat", rest: channel });
      expect(parseSubject(built.inst(other, me))).toEqual({
        ...base,
        kind: "inst",
        rest: `${other.owner}.${other.actor}`,
      });
      expect(parseSubject(built.svc(role, me))).toEqual({ ...base, kind: "svc", rest: role });
      for (const subject of [built.chat(me, channel), built.inst(other, me), built.svc(role, me)]) {
        const split = parseSubject(subject);
        expect(split && isSurfaceable(split)).toBe(true);
      }
    }),
  );
});

test("W3.03 the parser never throws, and what it splits joins back into the subject", () => {
  const token = fc.oneof(
    fc.constantFrom("cotal", "main", "chat", "inst", "svc", "take", "live", "local", "alice", "*", ">", ""),
    fc.string({ maxLength: 4 }),
  );
  const subject = fc.oneof(
    fc.string(),
    fc.array(token, { maxLength: 9 }).map((tokens) => tokens.join(".")),
    fc.array(token, { maxLength: 6 }).map((tokens) => ["cotal", "main", ...tokens].join(".")),
  );
  fc.assert(
    fc.property(subject, (text) => {
      const split = parseSubject(text);
      if (split === undefined) return;
      const { kind, space, sender, rest } = split;
      const tail = kind === "chat" ? `${sender}.${rest}` : `${rest}.${sender}`;
      expect(`cotal.${space}.${kind}.${tail}`).toBe(text);
    }),
    { numRuns: 1000 },
  );
});

test("W3.04 what may be surfaced has lawful tokens everywhere", () => {
  const token = fc.oneof(fc.constantFrom("local", "alice", "team", "*", ">", "a-b", "ä"), fc.string({ maxLength: 3 }));
  fc.assert(
    fc.property(fc.constantFrom("chat", "inst", "svc"), fc.array(token, { maxLength: 5 }), (kind, tokens) => {
      const split = parseSubject(["cotal", "main", kind, ...tokens].join("."));
      if (split === undefined || !isSurfaceable(split)) return;
      expect(split.owner).toMatch(/^local$|^u_[a-z2-7]{26}$/);
      expect(split.actor).toMatch(/^[A-Za-z0-9_]{1,64}$/);
      expect(isChannel(split.rest)).toBe(true);
    }),
    { numRuns: 1000 },
  );
});

describe("W3.09 take and live are rails of their own", () => {
  test("a take splits into role and holder, and into nothing else", () => {
    const subject = main.take("reviewer", alice);
    expect(parseTake(subject)).toEqual({ role: "reviewer", owner: alice.owner, actor: "alice" });
    expect(parseSubject(subject)).toBeUndefined();
  });

  test("a probe is neither a take nor a delivery", () => {
    for (const plane of Object.values(Plane)) {
      const subject = main.live(plane, alice);
      expect(parseTake(subject)).toBeUndefined();
      expect(parseSubject(subject)).toBeUndefined();
    }
  });

  test.each([
    "cotal.main.take.reviewer.local",
    "cotal.main.take.reviewer.local.alice.x",
    "cotal.main.take.reviewer.local.",
    "cotal.main.take..local.alice",
    "cotal..take.reviewer.local.alice",
    "kotal.main.take.reviewer.local.alice",
    "cotal.main.live.auth.local.alice",
    "cotal.main.live.Manager.local.alice",
    "cotal.main.live.constructor.local.alice",
    "cotal.main.live.manager.local",
    "cotal.main.live.manager.local.alice.x",
    "cotal.main.live.manager.local.alice.reply.0123456789012345678901",
  ])("%s is no take", (subject) => {
    expect(parseTake(subject)).toBeUndefined();
  });

  test("a reply lies directly under its own request", () => {
    const request = main.take("reviewer", alice);
    expect(isReplyUnder(request, main.takeReply("reviewer", alice, NONCE))).toBe(true);
    expect(isReplyUnder(main.live(Plane.Manager, alice), main.liveReply(Plane.Manager, alice, NONCE))).toBe(true);
    const strangers = [
      undefined,
      "",
      `${request}.reply.`,
      `${request}.reply.short`,
      `${request}.reply.${NONCE}.x`,
      `${request}.reply.*`,
      `${request}.${NONCE}`,
      main.takeReply("other", alice, NONCE),
      main.takeReply("reviewer", bob, NONCE),
      `_INBOX_x.${NONCE}`,
    ];
    expect(strangers.filter((reply) => isReplyUnder(request, reply))).toEqual([]);
  });
});

test("W3.08 reserved prefixes are recognised, and our own subjects are none", () => {
  const reserved = ["$JS.API.INFO", "$KV.b.k", "$SYS.x", "$O.b.C.x", "_INBOX.x"];
  expect(reserved.filter((subject) => !isReservedSubject(subject))).toEqual([]);
  const ours = [main.chat(alice, "general"), "JS.API", "$JSX.API", "_INBOX_x.y", "KV.b"];
  expect(ours.filter(isReservedSubject)).toEqual([]);
});

describe("W3.01 a builder refuses what would be another subject", () => {
  const bad = { owner: "local", actor: "a.b" };
  const uidLess = "short";
  test.each<[string, () => string]>([
    ["a sender with a dot", () => main.chat(bad, "general")],
    ["a sender that is a wildcard", () => main.instGrant({ owner: "*", actor: "a" })],
    ["a recipient with a dash", () => main.inst({ owner: "a-b", actor: "c" }, alice)],
    ["a pattern as a publish target", () => main.chat(alice, "team.*")],
    ["a tail wildcard as a publish target", () => main.chat(alice, ">")],
    ["an empty channel", () => main.chat(alice, "")],
    ["a channel with an empty segment", () => main.chat(alice, "a..b")],
    ["a grant for a pattern with > inside", () => main.chatGrant(alice, "a.>.b")],
    ["a grant for half a wildcard", () => main.chatRead("a*")],
    ["a role with a dot", () => main.svc("a.b", alice)],
    ["a role that is a wildcard", () => main.svcTo("*")],
    ["a take of a wildcard", () => main.take("*", alice)],
    ["a nonce with a dot", () => main.takeReply("reviewer", alice, "0123456789012345678901.x")],
    ["a nonce that is a wildcard", () => main.liveReply(Plane.Manager, alice, "*")],
    ["another plane", () => main.live("auth" as Plane, alice)],
    ["another plane to serve", () => main.liveServe("*" as Plane)],
    ["a lifecycle UID that is none", () => main.dlv(alice, uidLess)],
    ["a member group that is none", () => main.dlvMarker(Number.NaN)],
    ["a space of nothing", () => spaceToken("")],
    ["a space of 33 characters", () => spaceToken("s".repeat(33))],
  ])("%s", (_what, build) => {
    expect(refusal(build).code).toBe("bad-request");
  });
});

test("W3.02 a space is sanitised, and a sanitised one stays as it is", () => {
  expect(spaceToken("my space")).toBe("my_space");
  expect(spaceToken("a.b>c*")).toBe("a_b_c_");
  expect(spaceSubjects("my space").prefix).toBe("cotal.my_space");
  fc.assert(fc.property(spaces, (space) => spaceToken(space) === space));
});
