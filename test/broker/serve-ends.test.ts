/**
 * The end of a server, asked for or not (§13.3, §13.4): every call ends in an answer, a named refusal or its
 * deadline, and what it says of the effect is true of what the handler did.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { handlersOf } from "../../shared/serve/serve.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import { STEP, STEP_ENDPOINT, stepContract } from "../support/serve-child.ts";
import { ENDPOINT, SPACE, deskHandlers, dial, legacy, pins, startDesk } from "../support/serve-rig.ts";
import { stopProcess } from "../support/stopped.ts";

let broker: TestBroker;
let asker: Connection;
let call: Call;

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  call = createCaller({
    nc: asker.nc,
    space: SPACE,
    caller: legacy,
    name: "asker",
    inboxPrefix: asker.inboxPrefix,
    denials: watchDenials(asker.nc),
    random: randomBytes,
    digests: (_, command) => {
      const { inputDigest = "", outputDigest = "" } = stepContract.commands.get(command)?.document ?? {};
      return { inputDigest, outputDigest };
    },
  });
});
afterAll(async () => {
  await asker.close();
  await broker.stop();
});

const step = (id: string, ms: number, deadlineMs = 2000): Promise<unknown> =>
  call(STEP_ENDPOINT, "step", { id, ms }, { deadlineMs });

/** How a call ended: `ok`, or code and outcome. */
const ended = (asked: Promise<unknown>): Promise<string> =>
  asked.then(
    () => "ok",
    (error: unknown) => (error instanceof CotalError ? `${error.code} ${error.outcome}` : "no CotalError"),
  );

describe("kill -9", () => {
  let child: ChildProcess;
  let lines: string[] = [];
  const said = (line: string): boolean => lines.includes(line);

  beforeEach(async () => {
    lines = [];
    const program = join(import.meta.dirname, "..", "support", "serve-child.ts");
    child = spawn(process.execPath, [program, broker.url, drawLifecycleUid(randomBytes)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    child.stdout?.on("data", (chunk: Buffer) => lines.push(...chunk.toString().trim().split("\n")));
    await vi.waitUntil(() => said("serving"), { timeout: 20_000 });
  });
  afterEach(() => kill());

  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  }

  test("W133.08 before the handler: unknown is what can be said, and it did not run", async () => {
    stopProcess(child.pid ?? 0);
    const asked = ended(step("a", 0, 1500));
    await asker.nc.flush();
    await kill();
    expect(await asked).toBe("deadline-exceeded unknown");
    expect(lines).toEqual(["serving"]);
  });

  test("W133.08 while the handler runs: unknown, and it had begun", async () => {
    const asked = ended(step("b", 60_000, 1500));
    await expect.poll(() => said("begin b")).toBe(true);
    await kill();
    expect(await asked).toBe("deadline-exceeded unknown");
    expect(lines).toEqual(["serving", "begin b"]);
  });

  test("W133.08 after its answer: executed, and the next call is told that nobody is there", async () => {
    expect(await ended(step("c", 0))).toBe("ok");
    await kill();
    await expect.poll(() => ended(step("d", 0))).toBe("unavailable not-executed");
    expect(lines).toEqual(["serving", "begin c", "end c"]);
  });

  test("W134.01 stopped: no responder is unavailable, not executed, and a new server finds no call that waited", async () => {
    await kill();
    await expect.poll(() => ended(step("e", 0))).toBe("unavailable not-executed");
    const heard: string[] = [];
    const next = await startStep((id) => void heard.push(id));
    expect(await ended(step("f", 0))).toBe("ok");
    expect(heard).toEqual(["f"]);
    await next.stop();
  });

  test("W133.08 at any moment: no call that says not-executed ran, and each that says ok did", async () => {
    const verdicts = new Map<string, Promise<string>>();
    const began = Date.now();
    let dying: Promise<void> | undefined;
    for (let index = 0; Date.now() - began < 900; index += 1) {
      const id = `n${index}`;
      verdicts.set(id, ended(step(id, index % 7, 1500)));
      if (index % 8 === 0) await sleep(1);
      if (Date.now() - began > 400) dying ??= kill();
    }
    await dying;
    const ends = await Promise.all([...verdicts].map(async ([id, verdict]) => [id, await verdict] as const));
    const known = ["ok", "unavailable not-executed", "deadline-exceeded unknown", "resource-exhausted not-executed"];
    expect(ends.filter(([, verdict]) => !known.includes(verdict))).toEqual([]);
    expect(ends.filter(([id, verdict]) => verdict.endsWith("not-executed") && said(`begin ${id}`))).toEqual([]);
    expect(ends.filter(([id, verdict]) => verdict === "ok" && !said(`end ${id}`))).toEqual([]);
    expect(new Set(ends.map(([, verdict]) => verdict)).has("ok")).toBe(true);
    await expect.poll(() => ended(step("late", 0, 1500)), { timeout: 20_000 }).toBe("unavailable not-executed");
    expect(said("begin late")).toBe(false);
  });
});

/** The same server in this process. */
async function startStep(onStep: (id: string) => unknown, concurrency = 4096) {
  const server = await dial(broker.url, "server");
  const desk = await startDesk(server.nc, {
    endpoint: STEP_ENDPOINT,
    contract: stepContract,
    concurrency,
    perCaller: concurrency,
    handlers: handlersOf(STEP, {
      step: async ({ id, ms }) => {
        onStep(id);
        await sleep(ms);
        return { id };
      },
    }),
  });
  return {
    ...desk,
    stop: async () => {
      await desk.stop();
      await server.close();
    },
  };
}

describe("drain", () => {
  test("W133.08 W134.01 under load: what had come is answered, what comes later is refused by the broker, and nothing is lost", async () => {
    const ran = new Set<string>();
    const server = await startStep((id) => ran.add(id));
    const verdicts = new Map<string, Promise<string>>();
    let stopping: Promise<void> | undefined;
    for (let index = 0; index < 1500; index += 1) {
      const id = `n${index}`;
      verdicts.set(id, ended(step(id, index % 20, 10_000)));
      if (index % 16 === 0) await sleep(1);
      if (index === 700) stopping = server.stop();
    }
    await stopping;
    const ends = await Promise.all([...verdicts].map(async ([id, verdict]) => [id, await verdict] as const));
    const by = (verdict: string): string[] => ends.filter(([, one]) => one === verdict).map(([id]) => id);
    expect(by("ok").toSorted()).toEqual([...ran].toSorted());
    expect(by("ok").length + by("unavailable not-executed").length).toBe(1500);
    expect(by("ok").length).toBeGreaterThan(200);
    expect(by("unavailable not-executed").length).toBeGreaterThan(0);
  });

  test("a second server takes over while the first drains: every call is answered once", async () => {
    const ran: string[] = [];
    const first = await startStep((id) => ran.push(id));
    const second = await startStep((id) => ran.push(id));
    const asked: Promise<string>[] = [];
    let stopping: Promise<void> | undefined;
    for (let index = 0; index < 800; index += 1) {
      asked.push(ended(step(`m${index}`, index % 10, 10_000)));
      if (index % 16 === 0) await sleep(1);
      if (index === 400) stopping = first.stop();
    }
    await stopping;
    expect(new Set(await Promise.all(asked))).toEqual(new Set(["ok"]));
    expect(ran.length).toBe(800);
    expect(new Set(ran).size).toBe(800);
    await second.stop();
  });

  test("stopping twice, and over a closed connection, ends as well", async () => {
    const server = await startStep(() => undefined);
    await Promise.all([server.stop(), server.stop()]);
    expect((await failure(step("late", 0))).code).toBe("unavailable");
  });

  test("over the bound: refused before the handler, and the refused never ran", async () => {
    const ran = new Set<string>();
    const server = await startStep((id) => ran.add(id), 8);
    const ends = await Promise.all(
      Array.from({ length: 200 }, async (_, index) => [`b${index}`, await ended(step(`b${index}`, 100))] as const),
    );
    const ok = ends.filter(([, verdict]) => verdict === "ok").map(([id]) => id);
    expect(ok.toSorted()).toEqual([...ran].toSorted());
    expect(ends.filter(([, verdict]) => verdict === "resource-exhausted not-executed").length).toBe(200 - ok.length);
    expect(ok.length).toBeGreaterThanOrEqual(8);
    expect(ok.length).toBeLessThan(200);
    await server.stop();
  });

  test("commands of one lane take no place from those of another", async () => {
    const server = await dial(broker.url, "server");
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const counts = { put: 0, ping: 0, aim: 0, end: 0 };
    const desk = await startDesk(server.nc, {
      concurrency: 1,
      perCaller: 1,
      lane: (command) => (command === "put" ? "slow" : ""),
      handlers: { ...deskHandlers(counts), put: () => released.then(() => ({ put: 1 })) },
    });
    const ask = createCaller({
      nc: asker.nc,
      space: SPACE,
      caller: legacy,
      name: "asker",
      inboxPrefix: asker.inboxPrefix,
      denials: watchDenials(asker.nc),
      random: randomBytes,
      digests: (_, command) => pins(command),
    });
    const held = ask(ENDPOINT, "put", { n: 1 }, { deadlineMs: 20_000 });
    expect(await ended(ask(ENDPOINT, "put", { n: 2 }))).toBe("resource-exhausted not-executed");
    expect(await ended(ask(ENDPOINT, "ping", undefined))).toBe("ok");
    release();
    expect(await ended(held)).toBe("ok");
    await desk.stop();
    await server.close();
  });
});
