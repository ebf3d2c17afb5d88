/** What the embedded space survives, what doctor finds, and what its daemons show. */
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { describe, expect, test, vi } from "vitest";
import { findBroker } from "../../launcher/broker-binary.ts";
import { openConnection } from "../../shared/broker/connect.ts";
import { connect } from "../../shared/client/session.ts";
import { Account } from "../../shared/grants/row.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid, drawNonce, parseDotForm, principal } from "../../shared/protocol/base/principals.ts";
import { formatCreds, parseCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { type Item, cli, eventually, including, leftOf, matching, startCli, textsOf } from "../support/cli.ts";
import { freePort } from "../support/nats-server.ts";
import { ctrlC, planeRig } from "../support/plane-rig.ts";
import { stopProcess } from "../support/stopped.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const rig = planeRig(["--auth", "static"]);

describe("what it survives", () => {
  /** Sends as fast as receipts come until told to stop; the texts that were acknowledged. */
  async function traffic(run: () => Promise<void>): Promise<{ readonly acked: string[]; readonly failed: number }> {
    await rig.plane.json("history", "general", "--as", "alice");
    const file = join(rig.state, "spaces", "main", "agents", "alice.creds");
    const session = await connect({ servers: [`127.0.0.1:${rig.port}`], credentials: { kind: "static", file } });
    const acked: string[] = [];
    let failed = 0;
    let n = 0;
    let done = false;
    const sending = (async () => {
      while (!done) {
        const text = `message ${(n += 1)}`;
        try {
          await session.send("general", text);
          acked.push(text);
        } catch {
          failed += 1;
          await sleep(50);
        }
        await sleep(5);
      }
    })();
    await run();
    const before = acked.length;
    await eventually(
      () => acked.length,
      (count) => count > before + 20,
      20_000,
    );
    done = true;
    await sending;
    await session.drain();
    return { acked, failed };
  }

  test("kill -9 of the broker during traffic: it comes back, one line says so, and nothing acknowledged is lost", async () => {
    const running = await rig.foreground();
    const tail = rig.plane.start("tail", "--as", "bob", "--channel", "general", "--json", "--timeout", "120");
    await tail.saying('"kind":"joined"');
    const first = rig.plane.pid("broker");
    const { acked } = await traffic(async () => {
      await sleep(500);
      process.kill(first, "SIGKILL");
      await running.saying('"kind":"restarted","child":"broker"');
    });
    const kept = textsOf(await rig.plane.json("history", "general", "--limit", "10000", "--as", "alice"));
    expect(acked.filter((text) => !kept.includes(text))).toEqual([]);
    expect(new Set(kept).size).toBe(kept.length);
    // The channel is durable: what came while the link was down is read back, once the plane is whole.
    const missing = await eventually(
      () => {
        const shown = new Set(textsOf(tail.items()));
        return acked.filter((text) => !shown.has(text));
      },
      (texts) => texts.length === 0,
    );
    expect(missing).toEqual([]);
    const shown = textsOf(tail.items());
    expect(shown.length).toBe(new Set(shown).size);
    tail.process.kill("SIGINT");
    await tail.ended;
    expect(running.err().match(/"kind":"died","child":"broker"/g)).toHaveLength(1);
    expect(rig.plane.pid("broker")).not.toBe(first);
    const [status] = await rig.plane.json("status");
    expect((status?.["parts"] as Item[] | undefined)?.[0]).toMatchObject({ name: "broker", health: "ok", restarts: 1 });
    ctrlC(running);
    expect((await running.ended).code).toBe(0);
    await rig.expectNothingLeft();
  });

  test("what is printed is whole, however slowly it is read", async () => {
    const running = await rig.foreground();
    await rig.plane.json("history", "general", "--as", "alice");
    const file = join(rig.state, "spaces", "main", "agents", "alice.creds");
    const session = await connect({ servers: [`127.0.0.1:${rig.port}`], credentials: { kind: "static", file } });
    const texts = Array.from({ length: 100 }, (_, n) => `${n} ${"x".repeat(2000)}`);
    await Promise.all(texts.map((text) => session.send("general", text)));
    await session.drain();
    const bin = join(import.meta.dirname, "..", "..", "cli", "bin.js");
    const command = `"${process.execPath}" "${bin}" history general --limit 1000 --as alice --json --state "${rig.state}"`;
    const { stdout } = await promisify(execFile)("sh", ["-c", `${command} | (sleep 3; cat)`], { maxBuffer: 1e8 });
    const lines = stdout.split("\n").filter((line) => line.includes("xxxx"));
    expect(lines.length).toBe(texts.length);
    ctrlC(running);
    await running.ended;
    await rig.expectNothingLeft();
  });

  test("kill -9 of the provisioner during traffic: sends go on, it comes back, and mint works again", async () => {
    const running = await rig.foreground();
    const first = rig.plane.pid("provisioner");
    const { acked, failed } = await traffic(async () => {
      await sleep(200);
      process.kill(first, "SIGKILL");
      await running.saying('"kind":"restarted","child":"provisioner"', 40_000);
    });
    expect(failed).toBe(0);
    expect(acked.length).toBeGreaterThan(20);
    expect(rig.plane.pid("provisioner")).not.toBe(first);
    const minted = await eventually(
      () => rig.plane.run("mint", "--owner", "acme", "--actor", "after", "--json"),
      ({ code }) => code === 0,
    );
    expect(minted.items()[0]).toMatchObject({ kind: "minted" });
    expect((await rig.plane.run("status")).code).toBe(0);
  });

  test("kill -9 of the launcher: its daemon ends, status and doctor say so, and up takes over what is left", async () => {
    const running = await rig.foreground();
    await rig.plane.json("send", "general", "before", "--as", "alice");
    const broker = rig.plane.pid("broker");
    process.kill(rig.plane.pid("launcher"), "SIGKILL");
    await running.ended;
    const [status] = (await rig.plane.run("status", "--json")).items();
    expect(status).toMatchObject({ running: false, crashed: true });
    const doctor = await rig.plane.run("doctor", "--json");
    expect(doctor.code).toBe(5);
    expect(doctor.items()[0]).toMatchObject({ kind: "finding", check: "launcher", next: matching(/cotal up/) });
    // Its clients are still served by the broker that was left.
    expect((await rig.plane.run("send", "general", "meanwhile", "--as", "alice")).code).toBe(0);
    const again = await cli(rig.up("--detach", "--json"));
    expect(again.code).toBe(0);
    expect(rig.plane.pid("broker")).not.toBe(broker);
    const kept = textsOf(await rig.plane.json("history", "general", "--as", "alice"));
    expect(kept).toEqual(["before", "meanwhile"]);
    await rig.plane.run("down");
    await rig.expectNothingLeft();
  });

  test("kill -9 of everything at once: the same state comes up again with what it held", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.json("send", "general", "kept", "--as", "alice");
    const pids = (["launcher", "broker", "provisioner"] as const).map((name) => rig.plane.pid(name));
    for (const pid of pids) process.kill(pid, "SIGKILL");
    await rig.expectNothingLeft();
    expect((await cli(rig.up("--detach"))).code).toBe(0);
    expect(textsOf(await rig.plane.json("history", "general", "--as", "alice"))).toEqual(["kept"]);
    expect((await rig.plane.run("doctor")).code).toBe(0);
  });

  test("a record that names somebody else's process: nobody is signalled, and up works", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.run("down");
    const bystander = startCli([
      "up",
      "--state",
      join(rig.state, "other"),
      "--port",
      String(await freePort()),
      "--json",
    ]);
    await bystander.saying('"kind":"ready"');
    const record = JSON.parse(readFileSync(join(rig.state, "other", "run", "plane.json"), "utf8")) as {
      launcher: { start: string };
      children: { process: { start: string } }[];
    };
    record.launcher.start = "1";
    for (const child of record.children) child.process.start = "1";
    writeFileSync(join(rig.state, "run", "plane.json"), JSON.stringify(record));
    expect((await rig.plane.run("status")).code).toBe(3);
    expect((await rig.plane.run("down")).code).toBe(0);
    expect((await cli(rig.up("--detach"))).code).toBe(0);
    expect((await cli(["status", "--state", join(rig.state, "other")])).code).toBe(0);
    bystander.process.kill("SIGINT");
    expect((await bystander.ended).code).toBe(0);
  });
});

describe("doctor", () => {
  const findingsOf = async (): Promise<{
    readonly code: number | null;
    readonly checks: string[];
    readonly items: Item[];
  }> => {
    const ran = await rig.plane.run("doctor", "--json");
    const items = ran.items().filter(({ kind }) => kind === "finding");
    return { code: ran.code, checks: items.map(({ check }) => String(check)), items };
  };

  test("A.08: nothing runs: findings with what to do, exit 5, no crash", async () => {
    const { code, items } = await findingsOf();
    expect(code).toBe(5);
    expect(items[0]).toMatchObject({ check: "daemons", level: "error", next: matching(/cotal up/) });
  });

  test("A.08: a frozen daemon, a dead one and a dead broker are each found, and health returns", async () => {
    await cli(rig.up("--detach"));
    expect((await findingsOf()).code).toBe(0);

    const provisioner = rig.plane.pid("provisioner");
    stopProcess(provisioner);
    const frozen = await findingsOf();
    process.kill(provisioner, "SIGCONT");
    expect([frozen.code, frozen.checks]).toEqual([5, including("provisioner", "space")]);

    // A frozen launcher restarts nothing, so what is dead stays dead.
    stopProcess(rig.plane.pid("launcher"));
    process.kill(provisioner, "SIGKILL");
    const dead = await findingsOf();
    expect(dead.code).toBe(5);
    expect(dead.items.find(({ check }) => check === "provisioner")?.["message"]).toMatch(/not running/);

    process.kill(rig.plane.pid("broker"), "SIGKILL");
    const gone = await findingsOf();
    expect([gone.code, gone.checks]).toEqual([5, including("broker", "provisioner")]);
    expect(gone.items.every(({ next }) => typeof next === "string" && next !== "")).toBe(true);

    process.kill(rig.plane.pid("launcher"), "SIGCONT");
    const healed = await eventually(findingsOf, ({ code }) => code === 0, 60_000);
    expect(healed.code).toBe(0);
  });
});

describe("doctor, the stores and the limits", () => {
  test("A.08: an inbox that is missing is found, by the agent that misses it", async () => {
    await cli(rig.up("--detach"));
    const [minted] = await rig.plane.json("mint", "--owner", "acme", "--actor", "x");
    const who = String(minted?.["principal"]);
    await removeInbox(rig.state, `nats://127.0.0.1:${rig.port}`, who, String(minted?.["uid"]));
    const ran = await rig.plane.run("doctor", "--json");
    expect(ran.code).toBe(5);
    expect(ran.items()).toContainEqual({
      kind: "finding",
      check: "durable",
      level: "error",
      message: matching(new RegExp(`^${who} has no dm_`)),
      next: matching(/cotal deprovision/),
    });
  });

  test("PH.01: a server with a small control line is found, and nothing is minted through it", async () => {
    const server = `nats://127.0.0.1:${rig.port}`;
    await cli(rig.up("--detach"));
    await rig.plane.run("down");
    const config = join(rig.state, "broker", "nats-server.conf");
    writeFileSync(config, readFileSync(config, "utf8").replace("max_control_line: 65536", "max_control_line: 4096"));
    const { path } = findBroker(process.env);
    const broker = spawn(path, ["-c", config], { stdio: "ignore" });
    try {
      const found = await eventually(
        () => rig.plane.run("doctor", "--server", server, "--json"),
        (ran) => ran.out.includes("max_control_line"),
      );
      expect(found.code).toBe(5);
      expect(found.items()).toContainEqual(
        expect.objectContaining({ check: "broker limits", message: matching(/4096, and 65536 are needed/) }),
      );
      const added = await rig.plane.run("space", "add", "lab", "--server", server, "--json");
      expect([added.code, added.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
      expect(readdirSync(join(rig.state, "spaces"))).toEqual(["main"]);
    } finally {
      const ended = new Promise((resolve) => broker.once("exit", resolve));
      broker.kill("SIGKILL");
      await ended;
    }
  });

  test("a second space that can't be served keeps no other from coming up, and is found", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.json("space", "add", "lab");
    await rig.plane.run("down");
    const keys = join(rig.state, "spaces", "lab", "provisioner");
    rmSync(join(keys, "store-signer.nk"));
    mkdirSync(join(keys, "store-signer.nk"));
    const started = await cli(rig.up("--detach", "--json"));
    expect([started.code, started.items()[0]?.kind]).toEqual([0, "ready"]);
    expect(started.err).toContain("lab");
    expect((await rig.plane.run("send", "general", "main goes on", "--as", "alice")).code).toBe(0);
    const doctor = await rig.plane.run("doctor", "--json");
    expect(doctor.code).toBe(5);
    expect(doctor.items()).toContainEqual(
      expect.objectContaining({ kind: "finding", check: matching(/provisioner.*lab/) }),
    );
  });

  test("A.01 a damaged file of a space: up starts no daemon, names the file and says what to do, and goes on once it is back", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.run("down");
    const file = join(rig.state, "spaces", "main", "provisioner", "ledger.uid");
    const whole = readFileSync(file, "utf8");
    writeFileSync(file, "{}");
    const refused = await cli(rig.up("--json"));
    expect([refused.code, refused.items()]).toEqual([
      1,
      [
        expect.objectContaining({
          kind: "error",
          code: "failed-precondition",
          message: matching(/ledger\.uid/),
          next: matching(/copy/),
        }),
      ],
    ]);
    await rig.expectNothingLeft();
    writeFileSync(file, whole);
    expect((await cli(rig.up("--detach"))).code).toBe(0);
  });
});

/** Removes a durable behind everybody's back, with a credential of the space's own signer. */
async function removeInbox(folder: string, server: string, who: string, uid: string): Promise<void> {
  const target = { principal: parseDotForm(who) ?? principal("nobody", "x"), uid };
  const keys = join(folder, "spaces", "main", "provisioner");
  const accounts = JSON.parse(readFileSync(join(keys, "space.json"), "utf8")) as { store: string };
  const user = newKey("user");
  const holder = { principal: principal("local", "test"), uid: drawLifecycleUid(randomBytes) };
  const { jwt } = await mintUser({
    profile: "deprovisioner",
    scope: { space: "main", holder, inboxNonce: drawNonce(randomBytes), target },
    account: Account.Store,
    accountKey: accounts.store,
    signer: keyFromSeed(readFileSync(join(keys, "store-signer.nk"), "utf8")),
    userKey: user.publicKey,
    expires: Math.floor(Date.now() / 1000) + 60,
    limits: { subs: -1, payload: -1 },
  });
  const { view } = parseCreds(formatCreds(jwt, user));
  const connection = await openConnection({
    servers: [server],
    inboxPrefix: inboxPrefix(view.uid, view.inboxNonce),
    name: "test",
    reconnect: { kind: "bounded", attempts: 1 },
    authenticator: { jwt: () => jwt, sign: user.sign },
  });
  const subject = `$JS.API.CONSUMER.DELETE.DM_main.dm_${who.replace(".", "-")}-${uid}`;
  const answer = (await connection.nc.request(subject)).json<{ success?: boolean }>();
  await connection.drain();
  if (answer.success !== true) throw new Error(`${subject} was refused: ${JSON.stringify(answer)}`);
}

describe("what a daemon shows", () => {
  test("A.02: health and metrics are served, and no log or command line holds a seed or a JWT", async () => {
    await cli(rig.up("--detach"));
    await rig.plane.json("mint", "--owner", "acme", "--actor", "x");
    const record = JSON.parse(readFileSync(join(rig.state, "run", "plane.json"), "utf8")) as {
      children: { name: string; health?: number }[];
    };
    const health = record.children.find(({ name }) => name === "provisioner")?.health ?? 0;
    const bodies = await Promise.all(
      ["livez", "readyz", "metrics"].map(async (path) => {
        const answer = await fetch(`http://127.0.0.1:${health}/${path}`);
        return [answer.status, await answer.text()] as const;
      }),
    );
    expect(bodies.map(([status]) => status)).toEqual([200, 200, 200]);
    expect(bodies[2]?.[1]).toMatch(/^cotal_provisioner_requests_total\{.*command="mint"/m);
    const logs = readdirSync(join(rig.state, "logs")).map((name) =>
      readFileSync(join(rig.state, "logs", name), "utf8"),
    );
    const lines = leftOf(rig.state);
    expect(lines.length).toBeGreaterThan(1);
    // Not inside a longer word: the server's own public id may hold an SA.
    const secrets = /(?<![A-Z2-7])S[OAU][A-Z2-7]{50}|eyJ[\w-]{20,}\.[\w-]{20,}\./;
    expect([...logs, ...lines].filter((text) => secrets.test(text))).toEqual([]);
    const entries = readFileSync(join(rig.state, "logs", "provisioner.log"), "utf8")
      .trim()
      .split("\n");
    expect(entries.map((line) => (JSON.parse(line) as { service: string }).service)).toContain("provisioner");
  });
});
