/** What is repeated, and when (§13.8): never a write without proof that nothing ran. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { ENDPOINT, SPACE, type CallerRig, callerOn, contract, dial } from "../support/endpoint-rig.ts";
import {
  type Behaviour,
  type Foreign,
  NOTHING,
  artifactsOf,
  startForeign,
  startReads,
} from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let foreign: Foreign;
let rig: CallerRig;
let behaviour: Behaviour = () => NOTHING;

/** Time that passes only when somebody sleeps, and what was slept. */
let slept: number[] = [];
let jitter = 1;

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  await startReads(server.nc, SPACE, { artifacts: artifactsOf(contract), endpoints: [] });
  foreign = await startForeign({
    nc: server.nc,
    space: SPACE,
    endpoint: ENDPOINT,
    contract,
    commands: { look: (received) => behaviour(received), put: (received) => behaviour(received) },
  });
});
beforeEach(() => {
  slept = [];
  jitter = 1;
  let passed = 0;
  rig = callerOn(asker.nc, asker.inboxPrefix, {
    clock: {
      now: () => passed,
      sleep: (ms) => {
        slept.push(ms);
        passed += ms;
        return Promise.resolve();
      },
      jitter: () => jitter,
    },
  });
});
afterEach(() => {
  behaviour = () => NOTHING;
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

const count = (command: string): number => foreign.received.filter(({ subject }) => subject.command === command).length;

/** Refuses with this, so many times, and then does it. */
function refusing(times: number, error: object, data: unknown): Behaviour {
  let refused = 0;
  return ({ answer }) => {
    if (refused >= times) return data;
    refused += 1;
    answer({ ok: false, error: { message: "no", ...error } });
    return NOTHING;
  };
}

describe("waits", () => {
  test("PD.01: from 250 ms, doubled, up to 15 s, and none that would go past the deadline", async () => {
    behaviour = refusing(1000, { code: "resource-exhausted", outcome: "not-executed" }, null);
    const asked = rig.client.call(ENDPOINT, "put", { at: "x" }, { retry: true, deadlineMs: 100_000 });
    expect((await failure(asked)).code).toBe("resource-exhausted");
    expect(slept).toEqual([250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000, 15_000, 15_000]);
  });

  test.each([0, 0.5, 0.999])(
    "PD.01: full jitter: with a draw of %d each wait is that share of its ceiling",
    async (draw) => {
      jitter = draw;
      behaviour = refusing(4, { code: "unavailable", outcome: "not-executed" }, null);
      await rig.client.call(ENDPOINT, "put", { at: "x" }, { retry: true });
      expect(slept).toEqual([250, 500, 1000, 2000].map((ceiling) => Math.floor(ceiling * draw)));
    },
  );

  test("PD.01: what goes out again says what is left of the deadline", async () => {
    behaviour = refusing(2, { code: "unavailable", outcome: "not-executed" }, null);
    const from = foreign.received.length;
    await rig.client.call(ENDPOINT, "put", { at: "x" }, { retry: true, deadlineMs: 10_000 });
    const puts = foreign.received.slice(from).filter(({ subject }) => subject.command === "put");
    expect(puts.map(({ request }) => request.deadlineMs)).toEqual([10_000, 9750, 9250]);
    expect(new Set(puts.map(({ subject }) => subject.nonce)).size).toBe(3);
  });

  test("PD.01: without a word about it a call waits 15 s", async () => {
    behaviour = () => null;
    await rig.client.call(ENDPOINT, "put", { at: "x" });
    expect(foreign.received.at(-1)?.request.deadlineMs).toBe(15_000);
  });

  test("nothing is repeated that was not asked to be", async () => {
    behaviour = refusing(1, { code: "unavailable", outcome: "not-executed" }, null);
    const before = count("put");
    expect((await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).code).toBe("unavailable");
    expect(count("put")).toBe(before + 1);
  });
});

describe("what may be repeated", () => {
  test("PA.02: the lost answer of a write is not followed by another try", async () => {
    let ran = 0;
    behaviour = () => {
      ran += 1;
      return NOTHING;
    };
    const lost = rig.client.call(ENDPOINT, "put", { at: "x" }, { retry: true, deadlineMs: 400, attemptMs: 50 });
    expect(await failure(lost)).toMatchObject({ code: "deadline-exceeded", outcome: "unknown" });
    expect(ran).toBe(1);
    expect(slept).toEqual([]);
  });

  test("PA.02: the lost answer of a read is asked for again", async () => {
    let ran = 0;
    behaviour = () => {
      ran += 1;
      return ran < 3 ? NOTHING : { seen: "third" };
    };
    const asked = rig.client.call(ENDPOINT, "look", { at: "x" }, { retry: true, deadlineMs: 10_000, attemptMs: 100 });
    expect((await asked).data).toEqual({ seen: "third" });
    expect(ran).toBe(3);
  });

  test.each([
    { command: "put", outcome: "not-executed", tries: 3 },
    { command: "put", outcome: "unknown", tries: 1 },
    { command: "put", outcome: undefined, tries: 1 },
    { command: "put", outcome: "executed", tries: 1 },
    { command: "look", outcome: "not-executed", tries: 3 },
    { command: "look", outcome: "unknown", tries: 3 },
    { command: "look", outcome: "executed", tries: 1 },
  ])(
    "PA.02: unavailable with the outcome $outcome: $command is tried $tries times",
    async ({ command, outcome, tries }) => {
      const said = outcome === undefined ? {} : { outcome };
      behaviour = refusing(2, { code: "unavailable", ...said }, command === "put" ? null : { seen: "x" });
      const before = count(command);
      const asked = rig.client.call(ENDPOINT, command, { at: "x" }, { retry: true });
      const [settled] = await Promise.allSettled([asked]);
      expect(settled.status).toBe(tries === 3 ? "fulfilled" : "rejected");
      expect(count(command)).toBe(before + tries);
    },
  );

  test.each(["permission-denied", "conflict", "bad-request", "internal", "not-found", "failed-precondition"])(
    "PA.02: %s is no passing thing, whatever it says of the effect",
    async (code) => {
      behaviour = refusing(1, { code, outcome: "not-executed" }, { seen: "x" });
      const before = count("look");
      expect((await failure(rig.client.call(ENDPOINT, "look", { at: "x" }, { retry: true }))).code).toBe(code);
      expect(slept).toEqual([]);
      expect(count("look")).toBeLessThanOrEqual(before + 2);
    },
  );

  test("W134.01: an endpoint that comes while it is waited for is called once", async () => {
    let late: Foreign | undefined;
    let ran = 0;
    const waiting = callerOn(asker.nc, asker.inboxPrefix, {
      clock: {
        jitter: () => 0.5,
        sleep: async () => {
          late ??= await startForeign({
            nc: server.nc,
            space: SPACE,
            endpoint: "com.acme.late",
            contract,
            commands: { put: () => ((ran += 1), null) },
          });
        },
      },
    });
    await waiting.client.call("com.acme.late", "put", { at: "x" }, { retry: true });
    expect(ran).toBe(1);
    await late?.stop();
  });
});
