/** Connections and their ends, against a broker that is killed, frozen, replaced or closed to us. */
import { type Server, createServer } from "node:net";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  type ConnectOptions,
  type Connection,
  type ConnectionStatus,
  openConnection,
} from "../../shared/broker/connect.ts";
import { type TestBroker, freePort, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

/** Every wait here is generous: nothing asserts how fast it goes, only that it ends. */
const SOON = { timeout: 20_000 };

const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function broker(...args: Parameters<typeof startBroker>): Promise<TestBroker> {
  const started = await startBroker(...args);
  cleanups.push(() => started.stop());
  return started;
}

type Watched = { readonly link: Connection; readonly seen: ConnectionStatus[]; readonly types: () => string[] };

async function open(options: Partial<ConnectOptions> & { readonly servers: readonly string[] }): Promise<Watched> {
  const seen: ConnectionStatus[] = [];
  const link = await openConnection({
    name: "test",
    inboxPrefix: "_INBOX_test_1",
    reconnect: { kind: "endless", baseMs: 20, capMs: 200 },
    pingMs: 200,
    timeoutMs: 1000,
    onStatus: (status) => seen.push(status),
    ...options,
  });
  cleanups.push(() => link.close());
  return { link, seen, types: () => seen.map(({ type }) => type) };
}

const echoes = async ({ nc }: Connection): Promise<string> => {
  const sub = nc.subscribe("echo", { callback: (_, message) => void message.respond(message.data) });
  try {
    return (await nc.request("echo", "hi", { timeout: 5000 })).string();
  } finally {
    sub.unsubscribe();
  }
};

const withUser = (pass: string) => (port: number) =>
  `listen: "127.0.0.1:${port}"\nauthorization { users: [{ user: u, password: ${pass} }] }`;

describe("a broker that goes away", () => {
  test("A.09: killed and restarted: the same connection works again, and the events say so in order", async () => {
    const server = await broker();
    const { link, types } = await open({ servers: [server.url] });
    expect(await echoes(link)).toBe("hi");
    await server.kill();
    await expect.poll(() => link.isUp(), SOON).toBe(false);
    expect(await failure(link.up(50))).toMatchObject({ code: "unavailable", outcome: "not-executed" });
    await server.restart();
    await link.up(20_000);
    expect(await echoes(link)).toBe("hi");
    const heard = types();
    expect(heard[0]).toBe("down");
    expect(heard.at(-1)).toBe("up");
    expect(heard.slice(1, -1).every((type) => type === "retrying")).toBe(true);
    expect(heard.length).toBeGreaterThan(2);
  });

  test("A.09: a subscription made before the broker was killed receives after it is back", async () => {
    const server = await broker();
    const { link } = await open({ servers: [server.url] });
    const got: string[] = [];
    link.nc.subscribe("kept", { callback: (_, message) => void got.push(message.string()) });
    await server.kill();
    await expect.poll(() => link.isUp(), SOON).toBe(false);
    await server.restart();
    await link.up(20_000);
    link.nc.publish("kept", "after");
    await expect.poll(() => got, SOON).toEqual(["after"]);
  });

  test("frozen: the silence is noticed, and the connection is back after the thaw", async () => {
    const server = await broker();
    const { link, types } = await open({ servers: [server.url] });
    server.freeze();
    await expect.poll(() => link.isUp(), SOON).toBe(false);
    expect(types()[0]).toBe("down");
    server.thaw();
    await link.up(20_000);
    expect(await echoes(link)).toBe("hi");
  });

  test("waits for a first connection, by an endless policy, until the broker is there", async () => {
    const server = await broker();
    await server.kill();
    const opening = open({ servers: [server.url] });
    await sleep(300);
    await server.restart();
    const { link, types } = await opening;
    expect(link.isUp()).toBe(true);
    expect(types()).toContain("retrying");
  });

  test("a bounded policy gives up after its attempts, and says what it could not reach", async () => {
    const port = await freePort();
    const seen: ConnectionStatus[] = [];
    const error = await failure(
      open({
        servers: [`127.0.0.1:${port}`],
        reconnect: { kind: "bounded", attempts: 3, baseMs: 5 },
        onStatus: (status) => seen.push(status),
      }),
    );
    expect(error).toMatchObject({ code: "unavailable", outcome: "not-executed" });
    expect(seen.map(({ type }) => type)).toEqual(["retrying", "retrying"]);
  });

  test("the wait for a first connection ends when it is told to", async () => {
    const port = await freePort();
    const stop = new AbortController();
    const opening = failure(open({ servers: [`127.0.0.1:${port}`], signal: stop.signal }));
    setTimeout(() => stop.abort(), 100);
    expect(await opening).toMatchObject({ code: "cancelled", outcome: "not-executed" });
  });

  test("a bounded policy ends a standing connection too, with its cause in closed", async () => {
    const server = await broker();
    const { link, types } = await open({
      servers: [server.url],
      reconnect: { kind: "bounded", attempts: 2, baseMs: 5 },
    });
    await server.kill();
    expect(await link.closed).toMatchObject({ code: "unavailable" });
    expect(types().at(-1)).toBe("closed");
    expect(await failure(link.up(10))).toMatchObject({ code: "unavailable" });
  });
});

describe("a login that is refused", () => {
  test("an endless policy stops after three refusals in a row", async () => {
    const server = await broker({ config: withUser("right") });
    let asked = 0;
    const pass = (): string => {
      asked += 1;
      return "wrong-secret";
    };
    const error = await failure(open({ servers: [server.url], authenticator: { user: "u", pass } }));
    expect(error).toMatchObject({ code: "unauthenticated", outcome: "not-executed" });
    expect(`${error.message} ${error.next}`).not.toContain("wrong-secret");
    expect(asked).toBe(3);
  });

  test("a standing connection whose credential is no longer taken ends with that cause", async () => {
    const server = await broker({ config: withUser("before") });
    const { link, seen } = await open({
      servers: [server.url],
      authenticator: { user: "u", pass: () => "before" },
      reconnect: { kind: "endless", baseMs: 20, capMs: 100, denials: 2 },
    });
    await server.kill();
    writeFileSync(join(server.folder, "test.conf"), withUser("after")(server.port));
    await server.restart();
    expect(await link.closed).toMatchObject({ code: "unauthenticated" });
    const refused = seen.filter(({ type }) => type === "refused");
    expect(refused.length).toBeGreaterThanOrEqual(2);
  });

  test("the credential is read again at each dial: a renewed one needs no new connection", async () => {
    const server = await broker({ config: withUser("before") });
    let secret = "before";
    const { link } = await open({ servers: [server.url], authenticator: { user: "u", pass: () => secret } });
    await server.kill();
    writeFileSync(join(server.folder, "test.conf"), withUser("after")(server.port));
    secret = "after";
    await server.restart();
    await link.up(20_000);
    expect(await echoes(link)).toBe("hi");
  });

  test("a source that fails at first is the error; one that fails later is waited out", async () => {
    const server = await broker({ config: withUser("right") });
    const missing = new Error("no such file");
    const broken = (): string => {
      throw missing;
    };
    const error = await failure(open({ servers: [server.url], authenticator: { user: "u", pass: broken } }));
    expect(error).toMatchObject({ code: "unauthenticated", cause: missing });

    let isReadable = true;
    const pass = (): string => (isReadable ? "right" : broken());
    const { link, seen } = await open({ servers: [server.url], authenticator: { user: "u", pass } });
    isReadable = false;
    await server.kill();
    await server.restart();
    await expect.poll(() => seen.some(({ type }) => type === "refused"), SOON).toBe(true);
    isReadable = true;
    await link.up(20_000);
    expect(await echoes(link)).toBe("hi");
  });

  test("a refused publish and a refused subscription are told with their subject, and end nothing", async () => {
    const server = await broker({
      config: (port) =>
        `listen: "127.0.0.1:${port}"\nauthorization { users: [{ user: u, password: p, permissions: { publish: "ok", subscribe: ["_INBOX_test_1.>", "ok"] } }] }`,
    });
    const { link, seen } = await open({ servers: [server.url], authenticator: { user: "u", pass: () => "p" } });
    link.nc.publish("forbidden.pub");
    link.nc.subscribe("forbidden.sub").closed.catch(() => undefined);
    const told = (): string[] => seen.flatMap((status) => (status.type === "refused" ? [status.error.message] : []));
    await expect.poll(() => told().length, SOON).toBe(2);
    expect(told().join("\n")).toMatch(/publish on forbidden\.pub[^]*subscribe to forbidden\.sub/);
    expect(link.isUp()).toBe(true);
  });
});

describe("a broker that must not be used", () => {
  const stubs: Server[] = [];
  afterAll(() => {
    for (const stub of stubs) stub.close();
  });

  /** A peer that says it is an old nats-server. */
  async function oldServer(version: string): Promise<number> {
    const port = await freePort();
    const stub = createServer((socket) => {
      const info = {
        server_id: "X",
        version,
        proto: 1,
        host: "127.0.0.1",
        port,
        max_payload: 1_048_576,
        headers: true,
      };
      socket.write(`INFO ${JSON.stringify(info)}\r\n`);
      socket.on("data", (chunk) => void (chunk.toString().includes("PING") && socket.write("PONG\r\n")));
      socket.on("error", () => undefined);
    });
    stubs.push(stub);
    await new Promise<void>((resolve) => {
      stub.listen(port, "127.0.0.1", resolve);
    });
    return port;
  }

  test.each(["2.11.9", "1.4.1", "2.9.0-beta.1", "2.2.0"])(
    "PH.01: a server that says it is %j is refused at once, however patient the policy",
    async (version) => {
      const port = await oldServer(version);
      const error = await failure(open({ servers: [`127.0.0.1:${port}`] }));
      expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
      expect(error.next).toContain("2.12");
    },
  );

  test("PH.01: the floor is read from INFO of the real server, at a reconnect too", async () => {
    const server = await broker();
    const error = await failure(open({ servers: [server.url], floor: [99, 0] }));
    expect(error).toMatchObject({ code: "failed-precondition" });
    const { link } = await open({ servers: [server.url] });
    expect(link.version).toMatch(/^2\.\d+\.\d+/);
    expect(link.maxPayload).toBeGreaterThan(0);
    const { link: patient, seen } = await open({ servers: [`127.0.0.1:${server.port}`] });
    await server.kill();
    const stub = createServer((socket) => {
      socket.write(
        `INFO ${JSON.stringify({ server_id: "X", version: "2.10.0", max_payload: 1024, headers: true })}\r\n`,
      );
      socket.on("data", (chunk) => void (chunk.toString().includes("PING") && socket.write("PONG\r\n")));
      socket.on("error", () => undefined);
    });
    stubs.push(stub);
    stub.listen(server.port, "127.0.0.1");
    expect(await patient.closed).toMatchObject({ code: "failed-precondition" });
    expect(seen.at(-1)?.type).toBe("closed");
    stub.close();
  });

  const narrow = (port: number): string => `listen: "127.0.0.1:${port}"\nmax_control_line: 1024`;
  const wide = (port: number): string => `listen: "127.0.0.1:${port}"\nmax_control_line: 65536`;
  const token = "t".repeat(5000);

  test("PH.01: a CONNECT longer than the server's line is named, not retried for ever", async () => {
    const server = await broker({ config: narrow });
    const error = await failure(open({ servers: [server.url], authenticator: { token: () => token } }));
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(error.message).toContain("max_control_line");
    expect(error.next).toContain("65536");
    expect(error.message).not.toContain("tttt");
  });

  test("PH.01: the same at a reconnect, to a server whose line became short", async () => {
    const server = await broker({ config: wide });
    const { link } = await open({ servers: [server.url], authenticator: { token: () => token } });
    await server.kill();
    writeFileSync(join(server.folder, "test.conf"), narrow(server.port));
    await server.restart();
    const cause = await link.closed;
    expect(cause).toMatchObject({ code: "failed-precondition" });
    expect(cause?.message).toContain("max_control_line");
  });

  test("PH.01: a server that drops everybody is not blamed on its line", async () => {
    const port = await freePort();
    const stub = createServer((socket) => {
      socket.write(
        `INFO ${JSON.stringify({ server_id: "X", version: "2.14.0", max_payload: 1024, headers: true })}\r\n`,
      );
      socket.on("data", () => socket.destroy());
      socket.on("error", () => undefined);
    });
    stubs.push(stub);
    stub.listen(port, "127.0.0.1");
    const error = await failure(
      open({
        servers: [`127.0.0.1:${port}`],
        authenticator: { token: () => token },
        reconnect: { kind: "bounded", attempts: 2, baseMs: 5 },
      }),
    );
    expect(error.code).toBe("unavailable");
    expect(error.message).not.toContain("max_control_line");
  });
});

describe("an end of our own", () => {
  let server: TestBroker;
  beforeAll(async () => {
    server = await startBroker();
  });
  afterAll(() => server.stop());

  test("A.09: a drain sends what is pending, ends subscriptions, and closes without a cause", async () => {
    const { link: receiver } = await open({ servers: [server.url] });
    const got: string[] = [];
    receiver.nc.subscribe("drained", { callback: (_, message) => void got.push(message.string()) });
    await receiver.nc.flush();
    const { link, types } = await open({ servers: [server.url] });
    const sub = link.nc.subscribe("x", { callback: () => undefined });
    for (let n = 0; n < 100; n += 1) link.nc.publish("drained", `${n}`);
    await link.drain();
    expect(await link.closed).toBeUndefined();
    await sub.closed;
    expect(types()).toEqual(["closed"]);
    await expect.poll(() => got.length, SOON).toBe(100);
    await link.drain();
  });

  test("A.09: a drain ends within its bound when the broker is frozen, and when it is gone", async () => {
    const own = await broker();
    const { link: frozen } = await open({ servers: [own.url], pingMs: 60_000 });
    const { link: gone } = await open({ servers: [own.url] });
    own.freeze();
    const began = performance.now();
    await frozen.drain(300);
    expect(await frozen.closed).toBeUndefined();
    expect(performance.now() - began).toBeLessThan(10_000);
    own.thaw();
    await own.kill();
    await expect.poll(() => gone.isUp(), SOON).toBe(false);
    await gone.drain(60_000);
    expect(await gone.closed).toBeUndefined();
    expect(performance.now() - began).toBeLessThan(40_000);
  });

  test("a close while it reconnects ends the loop", async () => {
    const own = await broker();
    const { link } = await open({ servers: [own.url] });
    await own.kill();
    await expect.poll(() => link.isUp(), SOON).toBe(false);
    const waiting = failure(link.up(60_000));
    await link.close();
    expect(await link.closed).toBeUndefined();
    expect(await waiting).toMatchObject({ code: "unavailable", message: "the connection is closed" });
  });
});
