/** The life of a daemon's process, in real processes with real signals. */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { DaemonEvent } from "../../shared/daemon/host.ts";

const CHILD = join(import.meta.dirname, "..", "support", "daemon-child.ts");
const PATIENCE_MS = 20_000;

type Line = Readonly<Record<string, unknown>> & { readonly msg: string; readonly level: string };
type Life = {
  readonly child: ChildProcess;
  readonly lines: () => Line[];
  /** Waits for a line with that message. */
  readonly saw: (msg: string) => Promise<Line>;
  /** Waits for what it tells its parent. */
  readonly told: (kind: DaemonEvent["kind"]) => Promise<DaemonEvent>;
  readonly ended: Promise<{ code: number | null; signal: string | null }>;
};

function start(act: string, env: Readonly<Record<string, string>> = {}): Life {
  const child = spawn(process.execPath, [CHILD, act], {
    env: { PATH: process.env["PATH"], ...env },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let text = "";
  const events: DaemonEvent[] = [];
  const waiting = new Set<() => void>();
  const look = (): void => waiting.forEach((one) => one());
  child.stdout?.on("data", (chunk: Buffer) => {
    text += chunk.toString();
    look();
  });
  child.stderr?.on(
    "data",
    (chunk: Buffer) => (text += `${JSON.stringify({ level: "stderr", msg: chunk.toString() })}\n`),
  );
  child.on("message", (event: DaemonEvent) => {
    events.push(event);
    look();
  });
  // Not the child's own `close`: it never comes once the IPC channel was closed from here.
  const read = new Promise((closed) => child.stdout?.once("close", closed));
  const exited = new Promise<{ code: number | null; signal: string | null }>((end) =>
    child.once("exit", (code, signal) => end({ code, signal })),
  );
  const ended = Promise.all([exited, read]).then(([end]) => {
    look();
    return end;
  });
  const lines = (): Line[] =>
    text
      .split("\n")
      .slice(0, -1)
      .map((one) => JSON.parse(one) as Line);

  function until<T>(find: () => T | undefined, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no ${what} in: ${text}`)), PATIENCE_MS);
      const check = (): void => {
        const found = find();
        if (found === undefined) return;
        clearTimeout(timer);
        waiting.delete(check);
        resolve(found);
      };
      waiting.add(check);
      check();
    });
  }

  return {
    child,
    lines,
    saw: (msg) => until(() => lines().find((one) => one.msg === msg), `line "${msg}"`),
    told: (kind) => until(() => events.find((one) => one.kind === kind), `event ${kind}`),
    ended,
  };
}

const messages = (life: Life) => life.lines().map(({ msg }) => msg);
const last = (life: Life) => life.lines().at(-1);

describe("A.01 A.02 the ordinary end", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("%s: intake, in flight, connections, and code 0", async (signal) => {
    const life = start("plain");
    await life.told("ready");
    life.child.kill(signal);
    expect(await life.ended).toEqual({ code: 0, signal: null });
    const order = ["started", "draining", "intake stopped", "drained", "the connection is closed", "stopped"];
    expect(messages(life).filter((msg) => order.includes(msg))).toEqual(order);
    expect(last(life)).toMatchObject({ msg: "stopped", exitCode: 0 });
    expect(life.lines().find(({ msg }) => msg === "draining")).toMatchObject({ signal, drainMs: 10_000 });
  });

  test("a background loop ends after the work and before the connections", async () => {
    const life = start("loop");
    await life.told("ready");
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
    const order = ["drained", "the loop ended", "the connection is closed"];
    expect(messages(life).filter((msg) => order.includes(msg))).toEqual(order);
  });

  test("Ctrl-C to a whole group, and then the launcher's SIGTERM, is one request and not two", async () => {
    const life = start("plain");
    await life.told("ready");
    life.child.kill("SIGINT");
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
    expect(messages(life)).toContain("drained");
  });

  test("health is served from before the start to the end of the drain", async () => {
    const life = start("starts for ever");
    const { health } = await life.told("listening");
    const ready = await fetch(`http://127.0.0.1:${health}/readyz`);
    expect(ready.status).toBe(503);
    expect(await ready.text()).toContain("the process is starting");
    expect((await fetch(`http://127.0.0.1:${health}/livez`)).status).toBe(200);
    life.child.kill("SIGTERM");
    await life.ended;
    await expect(fetch(`http://127.0.0.1:${health}/livez`)).rejects.toThrow(/fetch failed/);
  });

  test("once ready, it says so on all three paths", async () => {
    const life = start("loop");
    const { health } = await life.told("ready");
    const url = `http://127.0.0.1:${health}`;
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toContain('cotal_child_check_state{check="lifecycle"} 1');
    expect(metrics).toContain('cotal_child_check_state{check="loop:watch"} 1');
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
  });

  test("while it drains it is not ready any more", async () => {
    const life = start("stuck", { COTAL_DRAIN_MS: "5000" });
    const { health } = await life.told("ready");
    life.child.kill("SIGTERM");
    await life.saw("intake stopped");
    const ready = await fetch(`http://127.0.0.1:${health}/readyz`);
    expect([ready.status, await ready.text()]).toEqual([503, expect.stringContaining("the process is draining")]);
    life.child.kill("SIGTERM");
    await life.ended;
  });
});

describe("an end that is cut short", () => {
  test("work that hangs is given up at the deadline: code 4, connections closed", async () => {
    const life = start("stuck", { COTAL_DRAIN_MS: "300" });
    await life.told("ready");
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(4);
    expect(messages(life)).toContain("the connection is closed");
    expect(messages(life)).not.toContain("drained");
    expect(last(life)).toMatchObject({ exitCode: 4, next: expect.stringContaining("COTAL_DRAIN_MS") as string });
  });

  test("the same signal again ends it at once, with code 4", async () => {
    const life = start("stuck", { COTAL_DRAIN_MS: "600000" });
    await life.told("ready");
    life.child.kill("SIGTERM");
    await life.saw("intake stopped");
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(4);
    expect(messages(life)).toContain("the signal came again: ending at once");
  });
});

describe("the parent", () => {
  test("its end drains the daemon that was told to watch it", async () => {
    const life = start("plain", { COTAL_PARENT_IPC: "true" });
    await life.told("ready");
    life.child.disconnect();
    expect((await life.ended).code).toBe(0);
    expect(life.lines().find(({ msg }) => msg === "draining")).toMatchObject({ kind: "parent-gone" });
    expect(messages(life)).toContain("drained");
  });

  test("a daemon that was not told goes on without it", async () => {
    const life = start("plain");
    const { health } = await life.told("ready");
    life.child.disconnect();
    expect((await fetch(`http://127.0.0.1:${health}/livez`)).status).toBe(200);
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
  });
});

describe("what goes wrong has its exit code", () => {
  test.each([
    ["uncaught", 70, "nobody caught this"],
    ["rejection", 70, "nobody handled this"],
    ["fails to start", 3, "the broker is away"],
    ["fatal", 1, "revoked"],
    ["ends", 1, "the lease is lost"],
  ])("%s: it drains and ends with %d", async (act, code, why) => {
    const life = start(act);
    expect(await life.ended).toEqual({ code, signal: null });
    expect(life.lines().find(({ msg }) => msg === "draining")).toMatchObject({ err: { message: why } });
    expect(messages(life)).toContain("the connection is closed");
    expect(last(life)).toMatchObject({ msg: "stopped", exitCode: code });
    expect(life.lines().filter(({ level }) => level === "stderr")).toEqual([]);
  });

  test("a start that is under way gives up when it is told to end, and that is clean", async () => {
    const life = start("starts for ever");
    await life.told("listening");
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
    expect(messages(life)).toContain("the start gave up");
    expect(messages(life)).not.toContain("started");
  });

  test("a configuration with two problems is code 2, before anything else, and no value is told", async () => {
    const life = start("plain", { COTAL_DRAIN_MS: "hunter2hunter2", COTAL_LOG_LEVEL: "loud-hunter2" });
    expect((await life.ended).code).toBe(2);
    const said = JSON.stringify(life.lines());
    expect(said).toContain("2 problems");
    expect(said).not.toContain("hunter2");
    expect(messages(life)).toEqual(["the process can't start", "stopped"]);
  });

  test("a port that is taken is code 1", async () => {
    const first = start("plain");
    const { health } = await first.told("listening");
    const second = start("plain", { COTAL_HEALTH_PORT: String(health) });
    expect((await second.ended).code).toBe(1);
    first.child.kill("SIGTERM");
    expect((await first.ended).code).toBe(0);
  });

  test("a variable that no setting has is told, and the daemon starts", async () => {
    const life = start("plain", { COTAL_CHILD_GRETING: "typo" });
    await life.told("ready");
    expect(life.lines().find(({ level }) => level === "warn")).toMatchObject({
      warning: expect.stringContaining("COTAL_CHILD_GRETING") as string,
    });
    life.child.kill("SIGTERM");
    await life.ended;
  });

  test("a log that nobody reads any more ends nothing", async () => {
    const life = start("plain");
    const { health } = await life.told("ready");
    life.child.stdout?.destroy();
    life.child.kill("SIGTERM");
    expect((await life.ended).code).toBe(0);
    await expect(fetch(`http://127.0.0.1:${health}/livez`)).rejects.toThrow(/fetch failed/);
  });
});
