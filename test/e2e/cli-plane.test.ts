/** The embedded space as processes: how it starts, what it refuses, how it ends. */
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import { type Item, cli, leftOf, matching, oldNode, startCli, textsOf } from "../support/cli.ts";
import { freePort } from "../support/nats-server.ts";
import { ctrlC, planeRig } from "../support/plane-rig.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const rig = planeRig();

describe("start and end", () => {
  test("A.01: up is ready, says what to type next, and Ctrl-C ends all of it with 0", async () => {
    const running = startCli(rig.up(), { group: true });
    await running.saying("Ctrl-C here");
    expect(running.out()).toContain(`nats://127.0.0.1:${rig.port}`);
    expect(running.out()).toMatch(/npx cotal tail --as bob .*\n.*npx cotal send '#general' 'hello bob' --as alice/);
    ctrlC(running);
    const ran = await running.ended;
    expect(ran.code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("A.01: --json says ready once, with the address, and stopped at the end; nothing else", async () => {
    const running = await rig.foreground();
    ctrlC(running);
    const items = (await running.ended).items();
    expect(items.map(({ kind }) => kind)).toEqual(["ready", "stopped"]);
    expect(items[0]).toMatchObject({
      server: `nats://127.0.0.1:${rig.port}`,
      port: rig.port,
      space: "main",
      auth: "user",
      state: rig.state,
    });
  });

  test.skipIf(oldNode() === undefined)(
    "A.01: the machine's own older Node starts it, and one Ctrl-C is one",
    async () => {
      const node = oldNode() ?? "";
      const running = await rig.foreground({ node });
      const sent = await cli(["send", "general", "x", "--as", "alice", "--state", rig.state], { node });
      const usage = await cli(["send"], { node });
      ctrlC(running);
      const ran = await running.ended;
      expect([sent.code, usage.code, ran.code]).toEqual([0, 2, 0]);
      expect(ran.items().at(-1)?.kind).toBe("stopped");
      await rig.expectNothingLeft();
    },
  );

  test.each(["SIGTERM", "SIGHUP"] as const)("%s ends it in order too", async (name) => {
    const running = await rig.foreground();
    running.process.kill(name);
    expect((await running.ended).code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("A.01: whoever reads what it says may go away: Ctrl-C still ends all of it in order", async () => {
    const running = await rig.foreground();
    // As a tee does that the same Ctrl-C ends first, or a terminal that is closed.
    for (const stream of [running.process.stdout, running.process.stderr]) stream?.destroy();
    ctrlC(running);
    expect((await running.ended).code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("A.01: a reader that goes away while it says something ends all of it in order too", async () => {
    const running = await rig.foreground();
    for (const stream of [running.process.stdout, running.process.stderr]) stream?.destroy();
    // The first thing that it says from now on meets nobody.
    process.kill(rig.plane.pid("provisioner"), "SIGKILL");
    expect((await running.ended).code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("Ctrl-C while it starts leaves nothing behind", async () => {
    for (const wait of [30, 200, 500, 800]) {
      const running = startCli(rig.up("--json"), { group: true });
      await sleep(wait);
      ctrlC(running);
      const ran = await running.ended;
      // Before its first line a program ends by the signal itself.
      expect([0, null]).toContain(ran.code);
      await rig.expectNothingLeft();
    }
    expect((await cli(rig.up("--detach"))).code).toBe(0);
  });

  test("a detached start whose terminal dies before it is ready leaves nothing behind", async () => {
    for (const wait of [250, 600]) {
      const running = startCli(rig.up("--detach"), { group: true });
      await sleep(wait);
      running.process.kill("SIGKILL");
      expect((await running.ended).code).toBeNull();
      await rig.expectNothingLeft();
    }
  });

  test("a second Ctrl-C does not wait for a daemon that hangs", async () => {
    const running = await rig.foreground();
    process.kill(rig.plane.pid("provisioner"), "SIGSTOP");
    ctrlC(running);
    await sleep(800);
    expect(running.process.exitCode).toBeNull();
    ctrlC(running);
    expect((await running.ended).code).toBe(1);
    await rig.expectNothingLeft();
  });

  test("A.01: a daemon that hangs does not keep Ctrl-C from ending all of it", async () => {
    const running = await rig.foreground();
    process.kill(rig.plane.pid("provisioner"), "SIGSTOP");
    ctrlC(running);
    expect((await running.ended).code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("detach returns once ready; status and down find it; down leaves nothing and may be repeated", async () => {
    const started = await cli(rig.up("--detach", "--json"));
    expect(started.items()).toMatchObject([{ kind: "ready", port: rig.port }]);
    const [status] = await rig.plane.json("status");
    expect(status).toMatchObject({ kind: "status", running: true, phase: "ready", auth: "user", space: "main" });
    expect(((status?.["parts"] ?? []) as Item[]).map(({ name, health }) => [name, health])).toEqual([
      ["broker", "ok"],
      ["provisioner", "ok"],
      ["auth", "ok"],
      ["delivery", "ok"],
    ]);
    const [stopped] = await rig.plane.json("down");
    expect(stopped).toMatchObject({ kind: "stopped", ran: true });
    await rig.expectNothingLeft();
    const [again] = await rig.plane.json("down");
    expect(again).toMatchObject({ kind: "stopped", ran: false });
    expect((await rig.plane.run("status")).code).toBe(3);
  });

  test("a second up on the same state is refused; a second --detach is content with what runs", async () => {
    await cli(rig.up("--detach"));
    const pid = rig.plane.pid("broker");
    const second = await cli(rig.up("--json"));
    expect([second.code, second.items()[0]?.["code"]]).toEqual([1, "already-exists"]);
    const detached = await cli(rig.up("--detach", "--json"));
    expect([detached.code, detached.items()[0]?.kind]).toEqual([0, "ready"]);
    const other = await cli(["up", "--state", rig.state, "--port", String(await freePort()), "--detach", "--json"]);
    expect([other.code, other.items()[0]?.["code"]]).toEqual([1, "already-exists"]);
    expect(rig.plane.pid("broker")).toBe(pid);
  });

  test("two that start at once: one runs, the other is refused", async () => {
    const both = await Promise.all([cli(rig.up("--detach", "--json")), cli(rig.up("--detach", "--json"))]);
    const kinds = both.map((ran) => `${ran.code} ${JSON.stringify(ran.items()[0]?.["code"] ?? ran.items()[0]?.kind)}`);
    // On a slow machine the later one finds a plane that is ready, and is content with it.
    expect(kinds).toContain('0 "ready"');
    expect(kinds.filter((kind) => kind !== '0 "ready"' && kind !== '1 "already-exists"')).toEqual([]);
    expect(leftOf(rig.state).filter((line) => line.includes("nats-server"))).toHaveLength(1);
  });

  test("the port is remembered for the state, and what a killed start left half written is cleared away", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.run("down");
    const left = ["run/plane.json", "trust/operator.nk"].map((name) => join(rig.state, `${name}.0123456789ab.tmp`));
    for (const path of left) writeFileSync(path, "half");
    const again = await cli(["up", "--detach", "--json", "--state", rig.state]);
    expect(again.items()[0]).toMatchObject({ kind: "ready", port: rig.port });
    expect(left.filter((path) => existsSync(path))).toEqual([]);
  });
});

describe("what is refused", () => {
  test("a port that another program has: the refusal names a free one, and nothing is left", async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(rig.port, "127.0.0.1", resolve));
    const ran = await cli(rig.up("--json"));
    await new Promise((resolve) => other.close(resolve));
    const [error] = ran.items();
    expect([ran.code, error?.["code"]]).toEqual([1, "already-exists"]);
    expect(String(error?.["next"])).toMatch(/--port \d+/);
    await rig.expectNothingLeft();
  });

  test("a state keeps the mode it was made with: one that mints does not turn into one that is signed in to", async () => {
    await cli(rig.up("--auth", "static", "--detach"));
    await rig.plane.json("send", "general", "kept", "--as", "alice");
    expect((await rig.plane.json("space", "add", "lab"))[0]).toMatchObject({ space: "lab", auth: "static" });
    await rig.plane.run("down");
    const ran = await cli(rig.up("--auth", "user", "--json"));
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
    await rig.expectNothingLeft();
    const again = await cli(rig.up("--detach", "--json"));
    expect(again.items()[0]).toMatchObject({ kind: "ready", auth: "static" });
    expect(textsOf(await rig.plane.json("history", "general", "--as", "alice"))).toEqual(["kept"]);
    // Also where what the state remembers of itself is lost.
    await rig.plane.run("down");
    rmSync(join(rig.state, "plane.json"));
    const lost = await cli(rig.up("--detach", "--json"));
    expect(lost.items()[0]).toMatchObject({ kind: "ready", auth: "static" });
    expect(textsOf(await rig.plane.json("history", "general", "--as", "alice"))).toEqual(["kept"]);
  });

  test("an authenticated state is never opened by a flag", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.run("down");
    const ran = await cli(rig.up("--open", "--detach", "--json"));
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
    await rig.expectNothingLeft();
  });

  test("PH.01: a broker below the floor is refused before anything is minted, with what to do", async () => {
    mkdirSync(join(rig.state, "logs"));
    const binary = join(rig.state, "logs", "old-server");
    writeFileSync(binary, "#!/bin/sh\necho nats-server: v2.11.9\n");
    chmodSync(binary, 0o755);
    const ran = await cli(rig.up("--json"), { env: { NATS_SERVER_BIN: binary } });
    const [error] = ran.items();
    expect([ran.code, error?.["code"]]).toEqual([1, "failed-precondition"]);
    expect(`${String(error?.["message"])} ${String(error?.["next"])}`).toMatch(/2\.12/);
    expect(readdirSync(rig.state)).not.toContain("spaces");
    const doctor = await cli(["doctor", "--json", "--state", rig.state], { env: { NATS_SERVER_BIN: binary } });
    expect(doctor.items()).toContainEqual(expect.objectContaining({ kind: "finding", check: "broker binary" }));
  });

  test("a broker binary that is not there is named, with what to do", async () => {
    const ran = await cli(rig.up("--json"), { env: { NATS_SERVER_BIN: join(rig.state, "nowhere") } });
    expect(ran.items()[0]).toMatchObject({ kind: "error", code: "failed-precondition", next: matching(/npm ci/) });
  });
});
