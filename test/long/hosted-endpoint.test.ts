/** Somebody's endpoint in a real space: registered, served, renewed, taken over, and called all the while. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import {
  type Host,
  type HostedEndpoint,
  defineCluster,
  handlersOf,
  hostEndpoint,
} from "../../shared/endpoint/index.ts";
import { CotalError, ErrorCode, RETRY_AFTER } from "../../shared/protocol/base/errors.ts";
import { eventually, matching } from "../support/cli.ts";
import { startHosted } from "../support/hosted-process.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

// A predecessor's credential has to come to its end, and a sweep lets logins settle first.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 60_000 });

const ENDPOINT = "com.example.echo";
const SERVE_SECONDS = 6;

const ECHO = defineCluster({
  urn: "com.example.echo.v1",
  revision: 1,
  commands: [
    {
      name: "say",
      class: "ephemeral",
      effect: "read",
      input: z.strictObject({ text: z.string().max(100) }),
      output: z.strictObject({ text: z.string(), by: z.string() }),
    },
    {
      name: "note",
      class: "ephemeral",
      effect: "write",
      modes: ["self"],
      input: z.strictObject({ text: z.string() }),
      output: z.strictObject({ about: z.string() }),
    },
  ],
});

let space: TestSpace;
let sessions: Sessions;
let caller: TestSession;
let served: string;

/** A process of the service; `by` tells its answers from another's. */
async function hosting(by: string, more: Partial<HostedEndpoint> = {}, file = served): Promise<Host> {
  const host = await start(by, more, file);
  onTestFinished(() => host.drain());
  return host;
}

function start(by: string, more: Partial<HostedEndpoint> = {}, file = served): Promise<Host> {
  return hostEndpoint(
    { servers: [space.url], credentials: { kind: "static", text: file } },
    {
      endpoint: ENDPOINT,
      clusters: [ECHO],
      handlers: handlersOf(ECHO, {
        say: async ({ text }) => ({ text, by }),
        note: async (_, { from }) => ({ about: from }),
      }),
      ...more,
    },
  );
}

const say = async (text: string) => (await caller.endpoints.call(ENDPOINT, "say", { text })).data;

beforeAll(async () => {
  space = await startSpace({ env: { COTAL_PROVISIONER_SERVE_SECONDS: String(SERVE_SECONDS) } });
  sessions = sessionsOf(space);
  served = (await space.mint({ actor: "echo", capabilities: ["serve"] })).text;
  await space.call("endpoint-assign", { endpoint: ENDPOINT, owner: "acme" });
  // What a capability opens is known from the first registration on.
  await (await start("first")).drain();
  caller = await sessions.minted({ actor: "caller", owner: "other", capabilities: [ENDPOINT, `${ENDPOINT}@all`] });
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

describe("serving", () => {
  test("PI.07 W132.03 a call is answered by what was registered, and a target is who the subject says", async () => {
    const host = await hosting("a");
    expect(await say("hello")).toEqual({ text: "hello", by: "a" });
    const noted = await caller.endpoints.call(ENDPOINT, "note", { text: "x" }, { target: { mode: "self" } });
    expect(noted).toMatchObject({ data: { about: caller.me.id }, instanceId: host.instanceId, epoch: 1 });
  });

  test("W131.15 PA.08 each start is an instance of its own; the registry shows both, and says which has stopped", async () => {
    const a = await hosting("a");
    const b = await hosting("b");
    expect(a.instanceId).not.toBe(b.instanceId);
    await a.drain();
    const states = async () =>
      new Map((await caller.endpoints.endpoints(ENDPOINT)).map(({ instanceId, state }) => [instanceId, state]));
    const found = await eventually(
      states,
      (all) => all.get(a.instanceId) === "stopped" && all.get(b.instanceId) === "ready",
    );
    expect(found.get(b.instanceId)).toBe("ready");
    expect(await say("x")).toEqual({ text: "x", by: "b" });
  });

  test("W131.07 a credential is renewed over and over, and no call meets a gap", async () => {
    const troubles: unknown[] = [];
    await hosting("a", { onTrouble: (error) => troubles.push(error) });
    const until = Date.now() + 2.5 * SERVE_SECONDS * 1000;
    let calls = 0;
    while (Date.now() < until) {
      expect(await say(String(calls))).toEqual({ text: String(calls), by: "a" });
      calls += 1;
      await sleep(2);
    }
    expect(troubles).toEqual([]);
    expect(calls).toBeGreaterThan(100);
  });

  test("W135.07 every instance answers a scatter, under the capability for it", async () => {
    const [a, b] = [await hosting("a"), await hosting("b")];
    const answers = await caller.endpoints.scatter(ENDPOINT, "say", { text: "all" });
    const by = answers.answers.map(({ instanceId }) => instanceId);
    expect(by.toSorted()).toEqual(expect.arrayContaining([a.instanceId, b.instanceId].toSorted()));
  });
});

describe("what is refused", () => {
  test("W132.16 a name of another owner, and one that nobody was given", async () => {
    const stranger = (await space.mint({ actor: "thief", owner: "thieves", capabilities: ["serve"] })).text;
    expect(await failure(hosting("t", {}, stranger))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(await failure(hosting("a", { endpoint: "com.example.nobody" }))).toMatchObject({
      code: ErrorCode.PermissionDenied,
      next: matching(/cotal endpoint assign/),
    });
    const again = space.call("endpoint-assign", { endpoint: ENDPOINT, owner: "thieves" });
    expect(await failure(again)).toMatchObject({ code: ErrorCode.AlreadyExists });
    await space.call("endpoint-assign", { endpoint: ENDPOINT, owner: "acme" });
  });

  test("W132.01 a name of one label is this project's own, whoever asks", async () => {
    for (const endpoint of ["provisioner", "echo"]) {
      expect(await failure(hosting("a", { endpoint }))).toMatchObject({ code: ErrorCode.PermissionDenied });
    }
  });

  test("W132.16 without the capability the broker refuses the registration", async () => {
    const plain = (await space.mint({ actor: "plain" })).text;
    expect(await failure(hosting("p", {}, plain))).toMatchObject({ code: ErrorCode.PermissionDenied });
  });

  test("W131.15 an instance that is not one's own can't be taken over", async () => {
    const instanceId = "z".repeat(26);
    expect(await failure(hosting("a", { instanceId }))).toMatchObject({ code: ErrorCode.NotFound });
  });
});

test("W133.08 PI.07 a guard is asked last before the handler; what it refuses did not run", async () => {
  const asked: unknown[] = [];
  let ran = 0;
  await hosting("guarded", {
    guard: async (command, args, { from }) => {
      asked.push([command, args, from]);
      throw new CotalError(ErrorCode.PermissionDenied, "not today");
    },
    handlers: handlersOf(ECHO, {
      say: async ({ text }) => ({ text, by: String((ran += 1)) }),
      note: async (_, { from }) => ({ about: from }),
    }),
  });
  expect(await failure(say("x"))).toMatchObject({ code: ErrorCode.PermissionDenied, outcome: "not-executed" });
  expect([asked, ran]).toEqual([[["say", { text: "x" }, caller.me.id]], 0]);
  // What is no argument of it never comes that far.
  const bad = caller.endpoints.call(ENDPOINT, "say", { text: "y".repeat(101) });
  expect(await failure(bad)).toMatchObject({ code: ErrorCode.BadRequest });
  expect(asked).toHaveLength(1);
});

describe("W132.13 a call that is bound to one incarnation", () => {
  test("is executed at most once, and by that one alone, however the class rail splits the calls", async () => {
    const ran = new Map<string, string[]>();
    const counting = (by: string) =>
      handlersOf(ECHO, {
        say: async ({ text }) => {
          ran.set(text, [...(ran.get(text) ?? []), by]);
          return { text, by };
        },
        note: async (_, { from }) => ({ about: from }),
      });
    const a = await hosting("a", { handlers: counting("a") });
    await hosting("b", { handlers: counting("b") });
    const bind = { instanceId: a.instanceId, epoch: a.epoch };
    const calls = Array.from({ length: 200 }, async (_, n) => {
      const text = `bound ${n}`;
      try {
        await caller.endpoints.call(ENDPOINT, "say", { text }, { bind });
        return { text, outcome: "answered" };
      } catch (thrown) {
        return { text, outcome: (thrown as CotalError).outcome };
      }
    });
    const ended = await Promise.all(calls);
    const ranFor = ({ text }: { readonly text: string }) => ran.get(text) ?? [];
    expect(ended.filter(({ outcome }) => outcome === "answered").map(ranFor)).toEqual(
      ended.filter(({ outcome }) => outcome === "answered").map(() => ["a"]),
    );
    const refused = ended.filter(({ outcome }) => outcome !== "answered");
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.map(({ outcome }) => outcome)).toEqual(refused.map(() => "not-executed"));
    expect(refused.flatMap(ranFor)).toEqual([]);
  });
});

describe("W133.08 a server that is killed: every call ends, and what it says of the effect is true", () => {
  const WORK = "com.example.work";
  let worker: TestSession;
  beforeAll(async () => {
    await space.call("endpoint-assign", { endpoint: WORK, owner: "acme" });
    const first = await startHosted(space.url, served, WORK);
    await first.kill();
    worker = await sessions.minted({ actor: "worker", owner: "other", capabilities: [WORK] });
  });
  const ask = (id: string) => worker.endpoints.call(WORK, "do", { id }, { deadlineMs: 1500 });

  test("before the handler: nobody is there, and nothing ran", async () => {
    const server = await startHosted(space.url, served, WORK);
    onTestFinished(() => server.kill());
    await worker.endpoints.resolve(WORK, "do");
    await server.kill();
    expect(await failure(ask("early"))).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed" });
    expect(server.begun).toEqual([]);
  });

  test("during the handler: the deadline ends it, and nobody knows", async () => {
    const server = await startHosted(space.url, served, WORK);
    onTestFinished(() => server.kill());
    const begins = server.begins();
    const pending = failure(ask("midway"));
    await begins;
    await server.kill();
    expect(await pending).toMatchObject({ code: ErrorCode.DeadlineExceeded, outcome: "unknown" });
    expect(server.begun).toEqual(["midway"]);
  });

  test("after the handler: the answer stands", async () => {
    const server = await startHosted(space.url, served, WORK);
    onTestFinished(() => server.kill());
    const begins = server.begins();
    const pending = ask("late");
    await begins;
    server.go();
    expect(await pending).toMatchObject({ data: { id: "late" } });
    await server.kill();
    expect(server.begun).toEqual(["late"]);
  });
});

describe("W131.07 a takeover", () => {
  test("waits for the predecessor's end and says until when; then one epoch more, and the predecessor is over", async () => {
    const before = await hosting("before");
    const told: CotalError[] = [];
    const began = Date.now();
    const coming = hosting("after", { instanceId: before.instanceId, onTrouble: (error) => told.push(error) });
    // Its gate is shut: it renews no more, and ends.
    expect(await before.closed).toMatchObject({ code: ErrorCode.Expired });
    const host = await coming;
    expect(Date.now() - began).toBeGreaterThan(SERVE_SECONDS * 500);
    expect(told[0]).toMatchObject({ code: ErrorCode.FailedPrecondition, outcome: "not-executed" });
    expect(told[0]?.details).toMatchObject([{ kind: RETRY_AFTER }]);
    expect(host).toMatchObject({ instanceId: before.instanceId, epoch: 2 });
    expect(await say("x")).toEqual({ text: "x", by: "after" });
    expect(await caller.endpoints.call(ENDPOINT, "say", { text: "y" })).toMatchObject({ epoch: 2 });
  });
});

describe("in an open space, where nobody's identity is proved", () => {
  let open: TestSpace;
  let people: Sessions;
  beforeAll(async () => {
    open = await startSpace({ auth: "open" });
    people = sessionsOf(open);
  });
  afterAll(async () => {
    await people.closeAll();
    await open.stop();
  });
  const host = (by: string, instanceId?: string) =>
    hostEndpoint(
      { servers: [open.url], space: "main", credentials: { kind: "open", actor: "echo" } },
      {
        endpoint: ENDPOINT,
        clusters: [ECHO],
        handlers: handlersOf(ECHO, {
          say: async ({ text }) => ({ text, by }),
          note: async (_, { from }) => ({ about: from }),
        }),
        ...(instanceId === undefined ? {} : { instanceId }),
      },
    );

  test("PA.08 anybody registers any name but the space's own, and is called; the same instance has the next epoch", async () => {
    const one = await host("one");
    const bob = await people.open("bob");
    expect(await bob.endpoints.call(ENDPOINT, "say", { text: "x" })).toMatchObject({ data: { by: "one" }, epoch: 1 });
    await one.drain();
    const two = await host("two", one.instanceId);
    expect(two).toMatchObject({ instanceId: one.instanceId, epoch: 2 });
    expect(await bob.endpoints.call(ENDPOINT, "say", { text: "x" })).toMatchObject({ data: { by: "two" }, epoch: 2 });
    await two.drain();
  });
});

describe("while a daemon is away", () => {
  test("W131.07 serving goes on without the provisioner, and is renewed when it is back", async () => {
    const troubles: CotalError[] = [];
    const host = await hosting("a", { onTrouble: (error) => troubles.push(error) });
    expect(await say("x")).toMatchObject({ by: "a" });
    await space.provisioner.kill();
    await eventually(
      () => Promise.resolve(troubles.length),
      (count) => count > 0,
    );
    expect(await say("y")).toMatchObject({ by: "a" });
    await space.provisioner.restart();
    await sleep(SERVE_SECONDS * 1000);
    expect(await say("z")).toMatchObject({ by: "a" });
    expect(troubles[0]).toMatchObject({ code: matching(/unavailable|deadline-exceeded/) });
    await host.drain();
    expect(await host.closed).toBeUndefined();
  });

  test("W134.01 away for longer than a credential lives, a call says that nobody is there; later it is served again", async () => {
    const host = await hosting("a");
    await space.provisioner.kill();
    await sleep((SERVE_SECONDS + 3) * 1000);
    expect(await failure(say("x"))).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed" });
    await space.provisioner.restart();
    const said = await eventually(
      () => say("y").catch(() => undefined),
      (answer) => answer !== undefined,
      40_000,
    );
    expect(said).toMatchObject({ by: "a" });
    await host.drain();
    expect(await host.closed).toBeUndefined();
  });
});
