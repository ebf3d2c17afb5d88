/** Health checks, and the three questions over real HTTP. */
import { Agent, type IncomingHttpHeaders, request } from "node:http";
import { connect } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { type HealthServer, startHealthServer } from "../../shared/daemon/health-server.ts";
import { type Health, type HealthReport, createHealth } from "../../shared/daemon/health.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { type Metrics, createMetrics } from "../../shared/daemon/metrics.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { refusal } from "../support/refusal.ts";

describe("checks", () => {
  test("a check fails until its owner says otherwise; ready means that all are ok", () => {
    const health = createHealth();
    expect(health.report()).toEqual({ status: "ok", checks: [] });
    const front = health.check("connection:front");
    const store = health.check("connection:store");
    expect(health.report()).toMatchObject({ status: "failing" });
    expect(health.report().checks[0]).toMatchObject({ ok: false, detail: "nothing is known yet" });
    front.ok("connected");
    expect(health.report().status).toBe("failing");
    store.ok();
    expect(health.report().status).toBe("ok");
    front.fail("the broker is away", "wait");
    expect(health.report()).toMatchObject({
      status: "failing",
      checks: [{ name: "connection:front", ok: false, detail: "the broker is away", next: "wait" }, { ok: true }],
    });
  });

  test("a name has one owner at a time; a late word of a former one is no news", () => {
    const health = createHealth();
    const old = health.check("loop:watch");
    expect(refusal(() => health.check("loop:watch")).code).toBe("already-exists");
    old.remove();
    old.remove();
    const fresh = health.check("loop:watch");
    fresh.ok();
    old.fail("late", "x");
    old.remove();
    expect(health.report()).toMatchObject({ status: "ok", checks: [{ name: "loop:watch", ok: true }] });
  });

  test("listeners hear each change and each removal", () => {
    const health = createHealth();
    const heard: unknown[] = [];
    health.onChange((change) =>
      heard.push("removed" in change ? `${change.name} gone` : `${change.name} ${change.ok}`),
    );
    const check = health.check("a");
    check.ok();
    check.fail("x", "y");
    check.remove();
    check.ok();
    expect(heard).toEqual(["a false", "a true", "a false", "a gone"]);
  });

  test.each(["", "A", "1a", "a b", "a\n", "é", "a".repeat(65)])("%j names no check", (name) => {
    expect(refusal(() => createHealth().check(name)).code).toBe("internal");
  });

  test("their number is bounded, and removing makes room", () => {
    const health = createHealth();
    const all = Array.from({ length: 1024 }, (_, at) => health.check(`c${at}`));
    expect(refusal(() => health.check("one-more")).code).toBe("resource-exhausted");
    all[0]?.remove();
    expect(() => health.check("one-more")).not.toThrow();
  });

  test("A.02 no detail shows a secret, and none is long", () => {
    const health = createHealth();
    const seed = newKey("user").seedText();
    const check = health.check("a");
    check.fail(`refused: ${seed}`, `nats://u:${seed}@h`);
    expect(JSON.stringify(health.report())).not.toContain(seed);
    check.ok("x".repeat(5000));
    expect(JSON.stringify(health.report()).length).toBeLessThan(1000);
  });
});

type Answer = { readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: string };

function ask(port: number, path: string, method = "GET", body?: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call = request(
      { host: "127.0.0.1", port, path, method, agent: new Agent({ keepAlive: true }) },
      (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => (text += chunk));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }));
        response.on("error", reject);
      },
    );
    call.on("error", reject);
    call.end(body);
  });
}

/** Sends bytes as they are and hands back all that comes until the end. */
function raw(port: number, bytes: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.end(bytes));
    let text = "";
    socket.setEncoding("utf8");
    socket.on("data", (chunk: string) => (text += chunk));
    socket.on("close", () => resolve(text));
    socket.on("error", () => resolve(text));
  });
}

type Served = { server: HealthServer; health: Health; metrics: Metrics; log: string[] };

async function serve(change: { metrics?: Metrics; host?: string; port?: number } = {}): Promise<Served> {
  const lines: string[] = [];
  const log = createLog({ service: "test", level: "trace", destination: { write: (line) => void lines.push(line) } });
  const health = createHealth();
  const metrics = change.metrics ?? createMetrics({ daemon: "test" });
  const server = await startHealthServer({ host: "127.0.0.1", port: 0, health, log, ...change, metrics });
  onTestFinished(() => server.close().catch(() => undefined));
  return { server, health, metrics, log: lines };
}

describe("A.02 /livez, /readyz and /metrics", () => {
  test("the process lives whatever its checks say", async () => {
    const { server, health } = await serve();
    health.check("a").fail("the broker is away", "wait");
    const { status, headers, body } = await ask(server.port, "/livez");
    expect(status).toBe(200);
    expect(headers["content-type"]).toBe("application/json; charset=utf-8");
    expect(headers["cache-control"]).toBe("no-store");
    expect(JSON.parse(body)).toMatchObject({ status: "ok" });
  });

  test("readiness follows the checks, each with its reason and its advice", async () => {
    const { server, health } = await serve();
    const check = health.check("connection:front");
    check.fail("the broker is away", "start it");
    const away = await ask(server.port, "/readyz");
    expect(away.status).toBe(503);
    expect(JSON.parse(away.body) as HealthReport).toEqual({
      status: "failing",
      checks: [{ name: "connection:front", ok: false, detail: "the broker is away", next: "start it" }],
    });
    check.ok();
    expect((await ask(server.port, "/readyz")).status).toBe(200);
  });

  test("metrics are Prometheus text", async () => {
    const { server, metrics } = await serve();
    metrics.counter({ name: "cotal_test_x_total", help: "h" }).inc({}, 3);
    const { status, headers, body } = await ask(server.port, "/metrics");
    expect([status, headers["content-type"]]).toEqual([200, metrics.contentType]);
    expect(body).toContain("cotal_test_x_total 3");
    expect(body).toContain("process_cpu_seconds_total");
  });

  test("HEAD has the head of GET and no body", async () => {
    const { server } = await serve();
    const [get, head] = [await ask(server.port, "/livez"), await ask(server.port, "/livez", "HEAD")];
    expect([head.status, head.body, head.headers["content-length"]]).toEqual([200, "", get.headers["content-length"]]);
  });

  test.each([
    "/",
    "/livez/",
    "/livez?x=1",
    "/Livez",
    "/metrics/..",
    "/../etc/passwd",
    "//livez",
    "/__proto__",
    "/constructor",
  ])("there is no %s", async (path) => {
    const { server } = await serve();
    const { status, body } = await ask(server.port, path);
    expect(status).toBe(404);
    expect(body).toContain("/livez, /readyz, /metrics");
    expect(body).not.toContain("passwd");
  });

  test.each(["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])("%s is refused, with what is allowed", async (method) => {
    const { server } = await serve();
    const { status, headers } = await ask(server.port, "/livez", method);
    expect([status, headers["allow"]]).toEqual([405, "GET, HEAD"]);
  });

  test("one request a connection, so that idle ones don't fill the few places", async () => {
    const { server } = await serve();
    const two = await raw(server.port, "GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(two.match(/HTTP\/1\.1 200/g)).toHaveLength(1);
    expect(two).toMatch(/connection: close/i);
  });

  test("bytes that are no HTTP, and a head without end, leave the server answering", async () => {
    const { server } = await serve();
    for (const bytes of [
      "\u0000\u0001garbage\r\n\r\n",
      "GET\r\n\r\n",
      `GET /livez HTTP/1.1\r\nx: ${"y".repeat(20_000)}\r\n\r\n`,
    ]) {
      expect(await raw(server.port, bytes)).not.toContain("200 OK");
    }
    expect((await ask(server.port, "/livez")).status).toBe(200);
  });

  test("metrics that fail are 500 with nothing of the fault; the log has it", async () => {
    const metrics = createMetrics({ daemon: "test" });
    const broken: Metrics = {
      ...metrics,
      text: () => Promise.reject(new Error("the registry is broken")),
    };
    const { server, log } = await serve({ metrics: broken });
    const { status, body } = await ask(server.port, "/metrics");
    expect(status).toBe(500);
    expect(body).not.toContain("registry is broken");
    expect(log.join("")).toContain("the registry is broken");
    expect((await ask(server.port, "/livez")).status).toBe(200);
  });

  test("a port that is taken is a failed precondition that says what to set", async () => {
    const { server } = await serve();
    await expect(serve({ port: server.port })).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining("EADDRINUSE") as string,
      next: expect.stringContaining("COTAL_HEALTH_PORT") as string,
    });
    await expect(serve({ host: "203.0.113.1" })).rejects.toMatchObject({ code: "failed-precondition" });
  });

  test("closing cuts what is open and frees the port", async () => {
    const { server } = await serve();
    const idle = connect(server.port, "127.0.0.1");
    await new Promise((open) => idle.once("connect", open));
    const cut = new Promise((closed) => idle.once("close", closed));
    idle.on("error", () => undefined);
    await server.close();
    await cut;
    await expect(ask(server.port, "/livez")).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});
