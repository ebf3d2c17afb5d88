/**
 * What a server holds against a request, in the contract's order, on every route of both rails (§13.2, §13.3,
 * supplement K). Whether anything ran is counted at the handler.
 */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { PROVENANCE_HEADERS } from "../../shared/protocol/base/headers.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { type CallAddress, type Caller, Route } from "../../shared/protocol/endpoint/grammar.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import {
  type Counts,
  type Desk,
  ENDPOINT,
  EPOCH,
  ask,
  bodyOf,
  dial,
  issued,
  legacy,
  pins,
  startDesk,
  verdict,
} from "../support/serve-rig.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let desk: Desk;
let second: Desk;
/** Whom `checkTarget` lets pass no more. */
const GONE = "gone";

const NOTHING: Counts = { put: 0, ping: 0, aim: 0, end: 0 };

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  desk = await startDesk(server.nc, {
    checkTarget: async ({ actor }) => {
      if (actor !== GONE) return;
      throw new CotalError(ErrorCode.Conflict, "the target is another one now", { outcome: "executed" });
    },
  });
});
beforeEach(() => {
  for (const one of [desk, second]) {
    if (one === undefined) continue;
    Object.assign(one.counts, NOTHING);
    one.events.length = 0;
  }
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

const toInstance = (of: Desk = desk): Partial<CallAddress> => ({ route: Route.Inst, instanceId: of.instanceId });
const places: readonly (readonly [string, () => Partial<CallAddress>])[] = [
  ["one", () => ({ route: Route.One })],
  ["all", () => ({ route: Route.All })],
  ["inst", () => toInstance()],
];
const callers: readonly (readonly [string, Caller])[] = [
  ["ep", legacy],
  ["ep.v1", issued],
];
const everywhere = places.flatMap(([route, at]) => callers.map(([rail, caller]) => ({ route, rail, at, caller })));

describe("the order of the checks", () => {
  const target = { owner: legacy.principal.owner, actor: "dora", lifecycleUid: drawLifecycleUid(randomBytes) };
  const lawful = { ...bodyOf("aim"), target };

  /** In the contract's order: what is wrong, and what is said of it. */
  const faults: readonly { readonly what: string; readonly wrong: object; readonly code: string }[] = [
    { what: "another version", wrong: { v: 2 }, code: "unsupported-version" },
    { what: "another shape", wrong: { replyExpected: "yes" }, code: "bad-request" },
    { what: "another op", wrong: { op: { endpoint: ENDPOINT, command: "put" } }, code: "op-mismatch" },
    { what: "another class", wrong: { class: "journal" }, code: "class-mismatch" },
    { what: "no deadline", wrong: { deadlineMs: undefined }, code: "bad-request" },
    { what: "another sender", wrong: { from: { id: "local.other", name: "x" } }, code: "sender-mismatch" },
    {
      what: "another bind",
      wrong: { bind: { instanceId: drawLifecycleUid(randomBytes), epoch: EPOCH } },
      code: "failed-precondition",
    },
    { what: "another target", wrong: { target: { ...target, owner: `u_${"b".repeat(26)}` } }, code: "target-mismatch" },
    {
      what: "another digest",
      wrong: { op: { endpoint: ENDPOINT, command: "aim", ...pins("put") } },
      code: "contract-mismatch",
    },
    { what: "a target that is gone", wrong: { target: { ...target, actor: GONE } }, code: "conflict" },
    { what: "wrong arguments", wrong: { args: { n: "1" } }, code: "bad-request" },
  ];
  const aimed = { at: { target: { mode: "any", owner: target.owner } } } as const;

  test("W133.02 the request they are all made from is answered, and ran once", async () => {
    expect(await verdict(asker.nc, "aim", { ...aimed, over: lawful })).toBe("ok");
    expect(desk.counts).toEqual({ ...NOTHING, aim: 1 });
  });

  test.each(faults)("W133.02 W133.05 $what alone is $code, and nothing ran", async ({ wrong, code }) => {
    expect(await verdict(asker.nc, "aim", { ...aimed, over: { ...lawful, ...wrong } })).toBe(`${code} not-executed`);
    expect(desk.counts).toEqual(NOTHING);
  });

  const chains = faults.map(({ what, code }, from) => ({
    what,
    code,
    // What comes later in the order is written first, so that the earlier fault keeps a field they share.
    wrong: Object.assign(
      {},
      ...faults
        .slice(from)
        .toReversed()
        .map(({ wrong }) => wrong),
    ) as object,
  }));

  test.each(chains)(
    "W133.02 $what with everything after it is $code: the first one speaks",
    async ({ wrong, code }) => {
      expect(await verdict(asker.nc, "aim", { ...aimed, over: { ...lawful, ...wrong } })).toBe(`${code} not-executed`);
      expect(desk.counts).toEqual(NOTHING);
    },
  );

  test("W133.05 what a currency check says of an effect is not believed: nothing had begun", async () => {
    const [heard] = await ask(asker.nc, "aim", { ...aimed, over: { ...lawful, target: { ...target, actor: GONE } } });
    expect(heard?.reply).toMatchObject({ ok: false, error: { code: "conflict", outcome: "not-executed" } });
  });
});

describe("digests", () => {
  const ours = pins("put");
  test.each([
    ["no digest at all", {}],
    ["no input digest", { outputDigest: ours.outputDigest }],
    ["no output digest", { inputDigest: ours.inputDigest }],
    ["a foreign input digest", { ...ours, inputDigest: pins("aim").outputDigest }],
    ["a foreign output digest", { ...ours, outputDigest: ours.inputDigest }],
    ["the two exchanged", { inputDigest: ours.outputDigest, outputDigest: ours.inputDigest }],
  ])("W133.02 %s is contract-mismatch with advice, and nothing ran", async (_, digests) => {
    const over = { op: { endpoint: ENDPOINT, command: "put", ...digests } };
    const [heard] = await ask(asker.nc, "put", { over });
    expect(heard?.reply).toMatchObject({
      error: { code: "contract-mismatch", outcome: "not-executed", next: "describe the endpoint and ask again" },
    });
    expect(desk.counts).toEqual(NOTHING);
  });

  test("W133.02 describe pins none", async () => {
    const over = { op: { endpoint: ENDPOINT, command: "describe" }, args: undefined };
    expect(await verdict(asker.nc, "describe", { over })).toBe("ok");
  });

  test("a command that nobody declared is not listened to, an inherited name as little", async () => {
    for (const command of ["nothing", "cancel", "constructor"]) {
      expect(await verdict(asker.nc, command, {})).toBe("silence");
    }
    expect(desk.events).toEqual([]);
  });
});

describe("the bind fence", () => {
  const other = drawLifecycleUid(randomBytes);
  const refused = { details: [{ kind: "ai.cotal.ep.bind-refused" }] };

  test.each(callers)(
    "W132.13 another instance and another epoch are told apart on %s, and nothing ran",
    async (_, caller) => {
      const bind = (instanceId: string, epoch: number) =>
        ask(asker.nc, "put", { caller, over: { bind: { instanceId, epoch } } });
      const [wrong] = await bind(other, EPOCH);
      expect(wrong?.reply).toMatchObject({
        error: { code: "failed-precondition", outcome: "not-executed", ...refused },
      });
      for (const epoch of [EPOCH - 1, EPOCH + 1]) {
        const [old] = await bind(desk.instanceId, epoch);
        expect(old?.reply).toMatchObject({ error: { code: "expired", outcome: "not-executed", ...refused } });
      }
      expect(desk.counts).toEqual(NOTHING);
      const [right] = await bind(desk.instanceId, EPOCH);
      expect(right?.reply).toMatchObject({ ok: true, data: { put: 1 } });
      expect(desk.counts).toEqual({ ...NOTHING, put: 1 });
    },
  );

  test("W132.13 it comes before arguments and target", async () => {
    const over = { bind: { instanceId: other, epoch: EPOCH }, args: { n: "x" }, target: { owner: 1 } };
    expect(await verdict(asker.nc, "put", { over })).toBe("failed-precondition not-executed");
  });

  test("W132.13 a bind on the rail of one instance names that instance", async () => {
    const at = toInstance();
    const own = { bind: { instanceId: desk.instanceId, epoch: EPOCH } };
    expect(await verdict(asker.nc, "put", { at, over: { bind: { instanceId: other, epoch: EPOCH } } })).toBe(
      "bad-request not-executed",
    );
    expect(await verdict(asker.nc, "put", { at, over: own })).toBe("ok");
    expect(desk.counts.put).toBe(1);
  });

  test("W132.13 none on a scatter and none on describe", async () => {
    const bind = { instanceId: desk.instanceId, epoch: EPOCH };
    expect(await verdict(asker.nc, "put", { at: { route: Route.All }, over: { bind } })).toBe(
      "bad-request not-executed",
    );
    expect(await verdict(asker.nc, "describe", { over: { bind, args: undefined } })).toBe("bad-request not-executed");
    expect(desk.counts).toEqual(NOTHING);
  });
});

describe("routes and rails", () => {
  test.each(everywhere)(
    "W132.07 W132.15 $rail $route is served, and answered on the same rail",
    async ({ at, caller, rail }) => {
      const [heard] = await ask(asker.nc, "put", { at: at(), caller });
      expect(heard?.reply).toEqual({ v: 1, id: "r1", ok: true, data: { put: 1 } });
      expect(heard?.by).toMatchObject({ endpoint: ENDPOINT, instanceId: desk.instanceId, epoch: EPOCH });
      expect(heard?.by.generation).toBe(rail === "ep" ? undefined : issued.generation);
      expect(desk.counts).toEqual({ ...NOTHING, put: 1 });
    },
  );

  test.each(everywhere)("W132.10 a transport reply target is not answered on $rail $route", async ({ at, caller }) => {
    const stolen: string[] = [];
    const theft = asker.nc.subscribe("elsewhere.>", { callback: (_, { subject }) => void stolen.push(subject) });
    const heard = await ask(asker.nc, "put", { at: at(), caller, replyTo: "elsewhere.here" });
    expect(heard).toHaveLength(1);
    await asker.nc.flush();
    theft.unsubscribe();
    expect(stolen).toEqual([]);
  });

  test("W132.07 two instances share the class rail, each scatter reaches both, and each has its own rail", async () => {
    second = await startDesk(server.nc);
    const both = [desk, second];
    for (const [, caller] of callers) {
      for (const one of both) Object.assign(one.counts, NOTHING);
      const asked = await Promise.all(Array.from({ length: 40 }, () => ask(asker.nc, "put", { caller, answers: 2 })));
      expect(asked.map(({ length }) => length)).toEqual(asked.map(() => 1));
      expect(both.reduce((sum, { counts }) => sum + counts.put, 0)).toBe(40);
      expect(both.map(({ counts }) => counts.put > 0)).toEqual([true, true]);
      const scattered = await ask(asker.nc, "put", { caller, at: { route: Route.All }, answers: 2 });
      expect(scattered.map(({ by }) => by.instanceId).toSorted()).toEqual(
        both.map(({ instanceId }) => instanceId).toSorted(),
      );
      for (const one of both) {
        const heard = await ask(asker.nc, "put", { caller, at: toInstance(one), answers: 2 });
        expect(heard.map(({ by }) => by.instanceId)).toEqual([one.instanceId]);
      }
    }
    await second.stop();
  });

  const headerCases = PROVENANCE_HEADERS.flatMap((name) => [name, name.toLowerCase(), name.toUpperCase()]);

  test.each(everywhere)(
    "W133.12 every provenance header is dropped unread on $rail $route, in any case and empty",
    async ({ at, caller }) => {
      const heard = await Promise.all(
        headerCases.map((name) => ask(asker.nc, "put", { at: at(), caller, headers: [name], over: { v: 2 } })),
      );
      expect(heard.flat()).toEqual([]);
      expect(desk.events.map(({ result }) => result)).toEqual(headerCases.map(() => "dropped"));
      expect(desk.counts).toEqual(NOTHING);
      expect(await verdict(asker.nc, "put", { at: at(), caller, headers: ["X-Other"] })).toBe("ok");
    },
  );
});

describe("arguments and answers", () => {
  test.each([
    ["null", null, "ok"],
    ["nothing", undefined, "ok"],
    ["an object", {}, "bad-request not-executed"],
    ["false", false, "bad-request not-executed"],
  ])("PA.05 W133.05 a command without a payload takes %s as it should", async (_, args, expected) => {
    expect(await verdict(asker.nc, "ping", { over: { args } })).toBe(expected);
    expect(desk.counts.ping).toBe(expected === "ok" ? 1 : 0);
  });

  test("W133.05 a command without a payload answers without data", async () => {
    const [heard] = await ask(asker.nc, "ping", { over: { args: null } });
    expect(heard?.reply).toEqual({ v: 1, id: "r1", ok: true });
  });

  test.each([
    ["with a wrong answer", "internal executed"],
    ["with one field too many", "internal executed"],
    ["with nothing", "internal executed"],
    ["with what is no JSON", "internal executed"],
    ["refused, saying nothing", "conflict unknown"],
    ["refused, not executed", "conflict not-executed"],
    ["refused, executed", "conflict executed"],
    ["with a fault", "internal unknown"],
    ["well", "ok"],
  ])("W133.05 W133.08 a handler that ends %s: %s, and it ran once", async (how, expected) => {
    const [heard] = await ask(asker.nc, "end", { over: { args: { how } } });
    const { reply } = heard ?? {};
    expect(reply?.ok === true ? "ok" : `${reply?.error.code} ${reply?.error.outcome}`).toBe(expected);
    expect(JSON.stringify(reply)).not.toContain("hunter2");
    expect(desk.counts).toEqual({ ...NOTHING, end: 1 });
  });

  test("W133.08 a cast runs, and hears nothing of how it went", async () => {
    const cast = { replyExpected: false, deadlineMs: undefined };
    expect(await verdict(asker.nc, "end", { over: { ...cast, args: { how: "with a fault" } } })).toBe("silence");
    expect(await verdict(asker.nc, "put", { over: cast })).toBe("silence");
    expect(await verdict(asker.nc, "put", { over: { ...cast, op: { endpoint: ENDPOINT, command: "put" } } })).toBe(
      "silence",
    );
    expect(desk.events.map(({ result }) => result)).toEqual(["internal", "ok", "contract-mismatch"]);
    expect(desk.counts).toEqual({ ...NOTHING, put: 1, end: 1 });
  });
});
