/** The first rail (§13.2, §13.3): what a server refuses, in which order, and what a caller learns. */
import { randomBytes } from "node:crypto";
import { connect as connectSocket } from "node:net";
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { PROVENANCE_HEADERS } from "../../shared/protocol/base/headers.ts";
import { OPEN_OWNER, dotForm, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointReply } from "../../shared/protocol/endpoint/envelope.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { type ServedEndpoint, type ServedEvent, handlersOf, serveEndpoint } from "../../shared/serve/serve.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

const SPACE = "rail";
const me = { principal: principal(OPEN_OWNER, "caller"), uid: drawLifecycleUid(randomBytes) };
const instanceId = drawLifecycleUid(randomBytes);
const rails = endpointSubjects(SPACE);

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let call: Call;
let served: ServedEvent[] = [];
let endpoint: ServedEndpoint;
/** Ends the `wait` that runs; `undefined` while none does. */
let release: (() => void) | undefined;

const Say = z.looseObject({ say: z.string() });
const Any = z.looseObject({});
const read = { class: "ephemeral", effect: "read" } as const;

const CLERK = defineCluster({
  urn: "test.clerk.v1",
  revision: 1,
  commands: [
    { name: "echo", ...read, input: Say, output: z.strictObject({ said: z.string() }) },
    { name: "wait", ...read, input: Any, output: Any },
    { name: "fail", ...read, input: Any, output: Any },
    { name: "crash", ...read, input: Any, output: Any },
    { name: "huge", ...read, input: Any, output: Any },
    { name: "deep", ...read, input: Any, output: z.unknown() },
  ],
});
const contract = compileContract([CLERK], createValidators());
const pins = (name: string) => {
  const { inputDigest = "", outputDigest = "" } = contract.commands.get(name)?.document ?? {};
  return { inputDigest, outputDigest };
};

const handlers = handlersOf(CLERK, {
  echo: ({ say }) => Promise.resolve({ said: say }),
  wait: () =>
    new Promise((resolve) => {
      release = () => {
        release = undefined;
        resolve({});
      };
    }),
  fail: () =>
    Promise.reject(
      new CotalError(ErrorCode.Conflict, "somebody was first", { next: "read it", outcome: Outcome.NotExecuted }),
    ),
  crash: () => Promise.reject(new TypeError("a fault")),
  huge: () => Promise.resolve({ text: "x".repeat(2_000_000) }),
  deep: () => Promise.resolve(JSON.parse(`${"[".repeat(20_000)}${"]".repeat(20_000)}`) as unknown),
});

async function dial(name: string): Promise<Connection> {
  const prefix = inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes));
  return openConnection({ servers: [broker.url], inboxPrefix: prefix, name, reconnect: { kind: "endless" } });
}

function startServing(nc: NatsConnection, concurrency = 16, perCaller = concurrency): Promise<ServedEndpoint> {
  const onServed = (event: ServedEvent): void => void served.push(event);
  return serveEndpoint({
    nc,
    space: SPACE,
    endpoint: "clerk",
    instanceId,
    epoch: 3,
    contract,
    handlers,
    registrationRevision: () => 1,
    concurrency,
    perCaller,
    onServed,
    now: () => 0,
  });
}

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial("asker");
  server = await dial("server");
  endpoint = await startServing(server.nc);
  call = createCaller({
    nc: asker.nc,
    space: SPACE,
    caller: me,
    name: "caller",
    inboxPrefix: asker.inboxPrefix,
    denials: watchDenials(asker.nc),
    random: randomBytes,
    digests: (_, name) => pins(name),
  });
});
afterEach(() => {
  served = [];
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

/** Publishes a request as it is given and returns the reply, or `undefined` if none comes. */
async function raw(
  over: object,
  {
    onCommand = "echo",
    route = "one",
    text,
    extra,
  }: { onCommand?: string; route?: "one" | "inst"; text?: string; extra?: string } = {},
): Promise<EndpointReply | undefined> {
  const nonce = drawNonce(randomBytes);
  const subject =
    route === "one" ? rails.one("clerk", onCommand, me, nonce) : rails.inst("clerk", instanceId, onCommand, me, nonce);
  const body = {
    v: 1,
    id: "r1",
    op: { endpoint: "clerk", command: "echo", ...pins("echo") },
    class: "ephemeral",
    replyExpected: true,
    args: { say: "hello" },
    from: { id: dotForm(me.principal), name: "caller" },
    deadlineMs: 5000,
    ...over,
  };
  const sub = asker.nc.subscribe(rails.replyTo(me, nonce), { max: 1 });
  const sent = headers();
  if (extra !== undefined) sent.set(extra, "");
  asker.nc.publish(subject, text ?? JSON.stringify(body), extra === undefined ? {} : { headers: sent });
  const timer = setTimeout(() => sub.unsubscribe(), 600);
  try {
    for await (const message of sub) return EndpointReply.parse(message.json());
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** Bytes of the protocol itself, past every client library. */
async function rawPublish(port: number, line: string): Promise<void> {
  const socket = connectSocket(port, "127.0.0.1");
  socket.write(`CONNECT {"headers":true,"verbose":false,"protocol":1}\r\n${line}PING\r\n`);
  await new Promise<void>((resolve, reject) => {
    socket.on("data", (chunk: Buffer) => {
      if (chunk.toString().includes("PONG")) resolve();
    });
    socket.once("error", reject);
  });
  socket.destroy();
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of source) items.push(item);
  return items;
}

describe("what a server answers", () => {
  test("a lawful request gets its data under its id", async () => {
    expect(await raw({})).toEqual({ v: 1, id: "r1", ok: true, data: { said: "hello" } });
  });

  test("unknown fields of a request are ignored", async () => {
    expect(await raw({ later: { and: "more" } })).toMatchObject({ ok: true });
  });

  test.each([
    { what: "another version", over: { v: 2 }, code: "unsupported-version" },
    { what: "another endpoint in op", over: { op: { endpoint: "other", command: "echo" } }, code: "op-mismatch" },
    { what: "another command in op", over: { op: { endpoint: "clerk", command: "wait" } }, code: "op-mismatch" },
    { what: "a journal", over: { class: "journal" }, code: "class-mismatch" },
    { what: "another sender", over: { from: { id: "local.other", name: "x" } }, code: "sender-mismatch" },
    { what: "a target", over: { target: { kind: "self" } }, code: "target-mismatch" },
    { what: "no deadline", over: { deadlineMs: undefined }, code: "bad-request" },
    { what: "a deadline of 0", over: { deadlineMs: 0 }, code: "bad-request" },
    { what: "a numeric id", over: { id: 7 }, code: "bad-request" },
    { what: "wrong arguments", over: { args: { say: 1 } }, code: "bad-request" },
    { what: "no arguments", over: { args: undefined }, code: "bad-request" },
  ])("$what is refused as $code, and nothing ran", async ({ over, code }) => {
    expect(await raw(over)).toMatchObject({ ok: false, error: { code, outcome: "not-executed" } });
  });

  test.each(["", "{", "[]", "null", '"x"', "\u0000\u0001"])(
    "%j is answered, and the next request works",
    async (text) => {
      expect(await raw({}, { text })).toMatchObject({ ok: false });
      expect(await raw({})).toMatchObject({ ok: true });
    },
  );

  test("a bind to another instance is told apart from one to another epoch", async () => {
    const other = drawLifecycleUid(randomBytes);
    const wrong = await raw({ bind: { instanceId: other, epoch: 3 } });
    expect(wrong).toMatchObject({ error: { code: "failed-precondition", outcome: "not-executed" } });
    const old = await raw({ bind: { instanceId, epoch: 2 } }, { route: "inst" });
    expect(old).toMatchObject({ error: { code: "expired", outcome: "not-executed" } });
    expect(await raw({ bind: { instanceId, epoch: 3 } }, { route: "inst" })).toMatchObject({ ok: true });
    expect(await raw({ bind: { instanceId: other, epoch: 3 } }, { route: "inst" })).toMatchObject({
      error: { code: "bad-request" },
    });
  });

  test.each(PROVENANCE_HEADERS.flatMap((name) => [name, name.toLowerCase()]))(
    "W5.10: a frame with %s is dropped before it is parsed",
    async (extra) => {
      expect(await raw({}, { extra })).toBeUndefined();
      expect(served).toEqual([expect.objectContaining({ result: "dropped" })]);
    },
  );

  test("a header block that nobody can read is dropped, and the next request works", async () => {
    const nonce = drawNonce(randomBytes);
    const subject = rails.one("clerk", "echo", me, nonce);
    const block = "NATS/1.0\r\nbad name: x\r\n\r\n";
    await rawPublish(broker.port, `HPUB ${subject} ${block.length} ${block.length + 2}\r\n${block}{}\r\n`);
    await expect.poll(() => served).toEqual([expect.objectContaining({ result: "dropped" })]);
    expect(await raw({})).toMatchObject({ ok: true });
  });

  test("a reply goes where the subject says, whatever the message asks for", async () => {
    const nonce = drawNonce(randomBytes);
    const theft = asker.nc.subscribe("elsewhere.>");
    const reply = asker.nc.subscribe(rails.replyTo(me, nonce), { max: 1 });
    const body = {
      v: 1,
      id: "r2",
      op: { endpoint: "clerk", command: "echo", ...pins("echo") },
      class: "ephemeral",
      replyExpected: true,
      args: { say: "x" },
      from: { id: dotForm(me.principal), name: "c" },
      deadlineMs: 1000,
    };
    asker.nc.publish(rails.one("clerk", "echo", me, nonce), JSON.stringify(body), { reply: "elsewhere.here" });
    const [message] = await all(reply);
    expect(message?.subject).toContain(`.${instanceId}.3.`);
    theft.unsubscribe();
    expect(await all(theft)).toEqual([]);
  });

  test("a request that wants no reply gets none, and ran", async () => {
    expect(await raw({ replyExpected: false, deadlineMs: undefined })).toBeUndefined();
    expect(served).toEqual([expect.objectContaining({ command: "echo", result: "ok" })]);
  });
});

describe("what a caller learns", () => {
  test("data, and who answered", async () => {
    expect(await call("clerk", "echo", { say: "hi" })).toEqual({ data: { said: "hi" }, instanceId, epoch: 3 });
  });

  test("a refusal comes with its code, its advice and its outcome", async () => {
    expect(await failure(call("clerk", "fail", {}))).toMatchObject({
      code: "conflict",
      message: "somebody was first",
      next: "read it",
      outcome: "not-executed",
    });
  });

  test("a fault of the server is internal, and its outcome unknown", async () => {
    expect(await failure(call("clerk", "crash", {}))).toMatchObject({ code: "internal", outcome: "unknown" });
  });

  test("an answer that is too large is a named refusal that says the command ran", async () => {
    expect(await failure(call("clerk", "huge", {}))).toMatchObject({ code: "resource-exhausted", outcome: "executed" });
  });

  test("an answer that JSON can't write is internal, says that the command ran, and the server goes on", async () => {
    expect(await failure(call("clerk", "deep", {}))).toMatchObject({ code: "internal", outcome: "executed" });
    expect((await call("clerk", "echo", { say: "still here" })).data).toEqual({ said: "still here" });
  });

  test("a connection that closes under a running request: the answer is lost, and nothing else", async () => {
    const faults: unknown[] = [];
    const heard = (fault: unknown): void => void faults.push(fault);
    process.on("unhandledRejection", heard);
    const short = await dial("short");
    await endpoint.stop();
    const own = await startServing(short.nc);
    const asked = failure(call("clerk", "wait", {}, { deadlineMs: 500 }));
    await expect.poll(() => release !== undefined).toBe(true);
    await short.close();
    release?.();
    expect(await asked).toMatchObject({ code: "deadline-exceeded", outcome: "unknown" });
    process.off("unhandledRejection", heard);
    expect(faults).toEqual([]);
    expect(served).toContainEqual(expect.objectContaining({ command: "wait", result: "unavailable" }));
    await own.stop();
    endpoint = await startServing(server.nc);
  });

  test("nobody there: unavailable at once, not executed", async () => {
    expect(await failure(call("nobody", "echo", {}))).toMatchObject({ code: "unavailable", outcome: "not-executed" });
  });

  test("silence: deadline-exceeded, outcome unknown", async () => {
    const silent = failure(call("clerk", "wait", {}, { deadlineMs: 200 }));
    expect(await silent).toMatchObject({ code: "deadline-exceeded", outcome: "unknown" });
    release?.();
  });

  test("over the bound of requests that run at once: resource-exhausted, and the rest is served", async () => {
    const narrow = await dial("narrow");
    await endpoint.stop();
    const small = await startServing(narrow.nc, 1);
    const first = call("clerk", "wait", {});
    await expect
      .poll(() => failure(call("clerk", "echo", { say: "2" }, { deadlineMs: 1000 })))
      .toMatchObject({
        code: "resource-exhausted",
        outcome: "not-executed",
      });
    release?.();
    await first;
    await small.stop();
    await narrow.close();
    endpoint = await startServing(server.nc);
  });

  test("a caller that takes its whole share leaves the others theirs", async () => {
    await endpoint.stop();
    const fair = await startServing(server.nc, 100, 1);
    const hog = call("clerk", "wait", {});
    await expect
      .poll(() => failure(call("clerk", "echo", { say: "more" }, { deadlineMs: 1000 })))
      .toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    const other = createCaller({
      nc: asker.nc,
      space: SPACE,
      caller: { principal: principal(OPEN_OWNER, "other"), uid: drawLifecycleUid(randomBytes) },
      name: "other",
      inboxPrefix: asker.inboxPrefix,
      denials: watchDenials(asker.nc),
      random: randomBytes,
      digests: (_, name) => pins(name),
    });
    expect((await other("clerk", "echo", { say: "mine" })).data).toEqual({ said: "mine" });
    const burst = Array.from({ length: 300 }, () => call("clerk", "echo", { say: "burst" }).catch(() => undefined));
    expect((await other("clerk", "echo", { say: "in the burst" })).data).toEqual({ said: "in the burst" });
    await Promise.all(burst);
    release?.();
    await hog;
    expect((await call("clerk", "echo", { say: "again" })).data).toEqual({ said: "again" });
    await fair.stop();
    endpoint = await startServing(server.nc);
  });

  test("stop answers what runs and takes nothing new", async () => {
    const running = call("clerk", "wait", {});
    await expect.poll(() => release !== undefined).toBe(true);
    const stopped = endpoint.stop();
    release?.();
    expect(await running).toMatchObject({ data: {} });
    await stopped;
    expect((await failure(call("clerk", "echo", { say: "late" }))).code).toBe("unavailable");
    endpoint = await startServing(server.nc);
  });

  test("a thousand calls at once all come back", async () => {
    await endpoint.stop();
    const wide = await startServing(server.nc, 2000);
    const answers = await Promise.all(
      Array.from({ length: 1000 }, (_, n) => call("clerk", "echo", { say: String(n) })),
    );
    expect(answers.map(({ data }) => (data as { said: string }).said)).toEqual(
      Array.from({ length: 1000 }, (_, n) => String(n)),
    );
    await wide.stop();
    endpoint = await startServing(server.nc);
  });
});
