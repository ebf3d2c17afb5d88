/** The planes beside the rails, and the reserved topics of events and facts (§13.2). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type PlaneAddress, parsePlaneSubject, planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import {
  type EventTopic,
  type FactTopic,
  eventTopic,
  factTopic,
  parseEventTopic,
  parseFactTopic,
} from "../../shared/protocol/endpoint/topics.ts";
import { lifecycleUids, principals, spaces } from "../support/arbitraries.ts";
import { blocks, commands, endpoints, epochs, ids } from "../support/endpoint-subjects.ts";
import { expectTotal, nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const UID = "c".repeat(26);
const INSTANCE = "i".repeat(26);
const HEX = "0a".repeat(32);
const triple = { owner: OWNER, actor: "alice", uid: UID };
const at = { endpoint: "com.acme", instanceId: INSTANCE, epoch: 7 };
const mine = `${OWNER}.alice.${UID}`;

const PLANES: readonly [string, PlaneAddress][] = [
  [`epe.com_acme.${INSTANCE}.7.ev.build.done`, { plane: "epe", ...at, topic: "ev.build.done" }],
  [`epf.com_acme.dec.${mine}.r1`, { plane: "epf", endpoint: "com.acme", topic: `dec.${mine}.r1` }],
  [`epj.com_acme.run.${mine}`, { plane: "epj", endpoint: "com.acme", command: "run", ...triple }],
  [
    `epj.com_acme.run.self.${mine}`,
    { plane: "epj", endpoint: "com.acme", command: "run", target: { mode: "self" }, ...triple },
  ],
  [
    `epj.com_acme.run.exact.local.bob.${UID}.${mine}`,
    {
      plane: "epj",
      endpoint: "com.acme",
      command: "run",
      ...triple,
      target: { mode: "exact", owner: "local", actor: "bob", uid: UID },
    },
  ],
  [`ept.com_acme.${INSTANCE}.7.t-1.schedule`, { plane: "ept", ...at, timerId: "t-1", timer: "schedule" }],
  [`ept.com_acme.${INSTANCE}.7.t-1.armed`, { plane: "ept", ...at, timerId: "t-1", timer: "armed" }],
  [`ept.com_acme.${INSTANCE}.7.t-1.fire`, { plane: "ept", ...at, timerId: "t-1", timer: "fire" }],
  [`epr.com_acme.${INSTANCE}.7.goal.${mine}.g1`, { plane: "epr", ...at, kind: "goal", qualifier: `${mine}.g1` }],
  [`epc.${HEX}`, { plane: "epc", digest: `sha256:${HEX}` }],
  [`epw.com_acme.builds.${mine}.r1`, { plane: "epw", endpoint: "com.acme", pool: "builds", ...triple, id: "r1" }],
  ["eps.com_acme.s_1.7.in", { plane: "eps", endpoint: "com.acme", sessionId: "s_1", epoch: 7, side: "in" }],
  ["eps.com_acme.s_1.7.out", { plane: "eps", endpoint: "com.acme", sessionId: "s_1", epoch: 7, side: "out" }],
];

describe("W132.17 planes", () => {
  test.each(PLANES)("W132.17 %s", (tail, address) => {
    expect(planeSubject("main", address)).toBe(`cotal.main.${tail}`);
    expect(parsePlaneSubject(`cotal.main.${tail}`)).toEqual({ space: "main", ...address });
  });

  test("W132.17 whatever is built is parsed as it was", () => {
    const published = fc.record({ endpoint: endpoints, instanceId: lifecycleUids, epoch: epochs });
    const caller = fc.tuple(principals, lifecycleUids).map(([principal, uid]) => ({ ...principal, uid }));
    const topics = fc.array(ids, { minLength: 1, maxLength: 5 }).map((tokens) => tokens.join("."));
    const addresses: fc.Arbitrary<PlaneAddress> = fc.oneof(
      fc.tuple(published, topics).map(([from, topic]) => ({ plane: "epe" as const, ...from, topic })),
      fc.tuple(endpoints, topics).map(([endpoint, topic]) => ({ plane: "epf" as const, endpoint, topic })),
      fc
        .tuple(endpoints, commands, caller, fc.option(blocks, { nil: undefined }))
        .map(([endpoint, command, from, target]) => ({
          plane: "epj" as const,
          endpoint,
          command,
          ...from,
          ...(target === undefined ? {} : { target }),
        })),
      fc
        .tuple(published, ids, fc.constantFrom("schedule" as const, "armed" as const, "fire" as const))
        .map(([from, timerId, timer]) => ({ plane: "ept" as const, ...from, timerId, timer })),
      fc
        .tuple(published, ids, topics)
        .map(([from, kind, qualifier]) => ({ plane: "epr" as const, ...from, kind, qualifier })),
      fc
        .tuple(endpoints, commands, caller, ids)
        .map(([endpoint, pool, from, id]) => ({ plane: "epw" as const, endpoint, pool, ...from, id })),
      fc
        .tuple(endpoints, ids, epochs, fc.constantFrom("in" as const, "out" as const))
        .map(([endpoint, sessionId, epoch, side]) => ({ plane: "eps" as const, endpoint, sessionId, epoch, side })),
    );
    fc.assert(
      fc.property(spaces, addresses, (space, address) => {
        expect(parsePlaneSubject(planeSubject(space, address))).toEqual({ space, ...address });
      }),
      { numRuns: 500 },
    );
  });

  const broken = PLANES.flatMap(([tail]) => [
    `cotal.main.${tail}.`,
    `cotal.main..${tail}`,
    `cotal.main.${tail.slice(0, tail.lastIndexOf("."))}`,
    `cotal.main.${tail.slice(0, tail.lastIndexOf("."))}.*`,
    `cotal.main.${tail.slice(0, tail.lastIndexOf("."))}.>`,
    `cotal.main.${tail.toUpperCase()}`,
    `cotal.main.x${tail}`,
    `cotal.${tail}`,
    `cotal.main.${tail}`.padEnd(1025, "x"),
  ]);

  test("W132.17 wrong arity, wildcards, capitals, empty tokens and 1025 bytes are no plane's", () => {
    // One token less is lawful where more than one may follow: an event's topic, a fact's, a qualifier.
    const shorter = broken.filter((text) => parsePlaneSubject(text) !== undefined);
    expect(shorter.map((text) => text.split(".")[2])).toEqual(["epe", "epf", "epr"]);
  });

  test("W132.17 no topic and no qualifier is no plane's, nor is one whose lawful tokens pass 1024 bytes", () => {
    const long = `cotal.main.epf.com_acme.${Array(20).fill("x".repeat(60)).join(".")}`;
    const short = ["epf.com_acme", `epe.com_acme.${INSTANCE}.7`, `epr.com_acme.${INSTANCE}.7.goal`];
    const texts = [long, ...short.map((tail) => `cotal.main.${tail}`)];
    expect(texts.filter((text) => parsePlaneSubject(text) !== undefined)).toEqual([]);
    expect(parsePlaneSubject(long.slice(0, 999))).toBeDefined();
  });

  test.each<[string, PlaneAddress]>([
    ["an id that is missing", { plane: "ept", ...at, timerId: undefined as unknown as string, timer: "fire" }],
    ["a topic without tokens", { plane: "epe", ...at, topic: "" }],
    ["a topic that is a wildcard", { plane: "epf", endpoint: "a", topic: "dec.>" }],
    ["a qualifier with an empty token", { plane: "epr", ...at, kind: "goal", qualifier: "a..b" }],
    ["a topic past 1024 bytes", { plane: "epe", ...at, topic: Array(20).fill("x".repeat(64)).join(".") }],
    ["a pool in capitals", { plane: "epw", endpoint: "a", pool: "Builds", ...triple, id: "r" }],
    ["a pool of 33 characters", { plane: "epw", endpoint: "a", pool: "p".repeat(33), ...triple, id: "r" }],
    ["an id of 65 characters", { plane: "epw", endpoint: "a", pool: "p", ...triple, id: "r".repeat(65) }],
    ["a timer's stage that is none", { plane: "ept", ...at, timerId: "t", timer: "fired" as "fire" }],
    ["a digest of another kind", { plane: "epc", digest: `md5:${HEX}` }],
    ["a broken epoch", { plane: "eps", endpoint: "a", sessionId: "s", epoch: 1.5, side: "in" }],
  ])("W132.17 %s is refused", (_what, address) => {
    expect(refusal(() => planeSubject("main", address)).code).toBe("bad-request");
  });
});

const EVENTS: readonly [string, EventTopic][] = [
  ["ev.build.done", { family: "ev", cluster: "build", event: "done" }],
  [`goal.${mine}.g1.progress`, { family: "goal", ...triple, goalId: "g1", step: "progress" }],
  ["cp.tok_1.waiting", { family: "cp", token: "tok_1", step: "waiting" }],
];
const FACTS: readonly [string, FactTopic][] = [
  [`dec.${mine}.r1`, { family: "dec", ...triple, id: "r1" }],
  ["quar.41", { family: "quar", sourceSeq: 41 }],
  [`goal.${mine}.g1.result`, { family: "goal", ...triple, goalId: "g1", fact: "result" }],
  [`goal.${mine}.g1.bind`, { family: "goal", ...triple, goalId: "g1", fact: "bind" }],
  [`wrk.builds.${mine}.r1`, { family: "wrk", pool: "builds", ...triple, id: "r1" }],
  [`eff.${mine}.r1`, { family: "eff", ...triple, id: "r1" }],
  ["cp.tok_1", { family: "cp", token: "tok_1" }],
  [`receipt.${mine}.r1.41`, { family: "receipt", ...triple, id: "r1", sourceSeq: 41 }],
];

describe("W132.18 reserved topics", () => {
  test.each(EVENTS)("W132.18 event %s", (text, topic) => {
    expect(eventTopic(topic)).toBe(text);
    expect(parseEventTopic(text)).toEqual(topic);
  });

  test.each(FACTS)("W132.18 fact %s", (text, topic) => {
    expect(factTopic(topic)).toBe(text);
    expect(parseFactTopic(text)).toEqual(topic);
  });

  test.each([
    "quar.0",
    "quar.041",
    "quar.9007199254740992",
    "quar.41.1",
    `dec.alice.${UID}.r1`,
    `dec.self.alice.${UID}.r1`,
    `dec.${mine}.r1.r2`,
    `dec.${mine}.*`,
    `goal.${mine}.g1.started`,
    `receipt.${mine}.r1`,
    `wrk.Builds.${mine}.r1`,
    "cp",
    "ev.build.done",
    "constructor.x",
    "",
  ])("W132.18 %j is no fact's topic", (text) => {
    expect(parseFactTopic(text)).toBeUndefined();
  });

  test("W132.18 a quarantine is no decision of a caller, whatever id he chooses", () => {
    const topics = FACTS.map(([, topic]) => factTopic(topic).split(".")[0]);
    expect(new Set(topics).size).toBe(7);
    expect(parseFactTopic(`quar.${mine}.41`)).toBeUndefined();
  });

  test("W132.18 a family that does not exist is refused", () => {
    expect(refusal(() => factTopic({ family: "done", id: "r" } as unknown as FactTopic)).code).toBe("bad-request");
    expect(refusal(() => eventTopic({ family: "toString" } as unknown as EventTopic)).code).toBe("bad-request");
  });

  test("W132.17 W132.18 near misses are read as what they say, or not at all", () => {
    const texts = [...PLANES.map(([tail]) => `cotal.main.${tail}`), ...[...EVENTS, ...FACTS].map(([text]) => text)];
    fc.assert(
      fc.property(nearMissText(texts), (text) => {
        expectTotal(() => [parsePlaneSubject(text), parseEventTopic(text), parseFactTopic(text)]);
        const plane = parsePlaneSubject(text);
        expect(plane === undefined ? text : planeSubject(plane.space, plane)).toBe(text);
        const event = parseEventTopic(text);
        expect(event === undefined ? text : eventTopic(event)).toBe(text);
        const fact = parseFactTopic(text);
        expect(fact === undefined ? text : factTopic(fact)).toBe(text);
      }),
      { numRuns: 2000 },
    );
  });
});
