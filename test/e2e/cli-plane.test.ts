/** The embedded space as processes: how it starts, what it survives, how it ends. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { findBroker } from "../../launcher/broker-binary.ts";
import { openConnection } from "../../shared/broker/connect.ts";
import { connect } from "../../shared/client/session.ts";
import { Account } from "../../shared/grants/row.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid, drawNonce, parseDotForm, principal } from "../../shared/protocol/base/principals.ts";
import { formatCreds, parseCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import {
  type Item,
  type Running,
  type TestPlane,
  cli,
  endAll,
  eventually,
  including,
  leftOf,
  matching,
  oldNode,
  planeOn,
  recordedPid,
  startCli,
  startPlane,
  textsOf,
} from "../support/cli.ts";
import { freePort } from "../support/nats-server.ts";

let state: string;
let port: number;
let plane: TestPlane;

beforeEach(async () => {
  state = mkdtempSync(join(tmpdir(), "cotal-up-"));
  port = await freePort();
  plane = planeOn(state, port);
});
afterEach(async () => {
  for (const child of ["launcher", "broker", "provisioner"] as const) resume(plane.pid(child));
  await plane.stop();
});

const up = (...args: string[]): string[] => ["up", "--state", state, "--port", String(port), ...args];

/** A foreground `up` in its own process group, as a terminal would have it. */
async function foreground(options: { readonly node?: string } = {}, ...args: string[]): Promise<Running> {
  const running = startCli(up("--json", ...args), { group: true, ...options });
  await running.saying('"kind":"ready"');
  return running;
}

/** Ctrl-C in a terminal reaches every process of the foreground group. */
function ctrlC(running: Running): void {
  process.kill(-(running.process.pid ?? 0), "SIGINT");
}

/** A process that was stopped must not outlive its test. */
function resume(pid: number): void {
  if (pid > 0) signal(pid, "SIGCONT");
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It is gone, which is what most tests are about.
  }
}

const expectNothingLeft = async (): Promise<void> => {
  expect(
    await eventually(
      () => leftOf(state),
      (left) => left.length === 0,
      5000,
    ),
  ).toEqual([]);
};

describe("start and end", () => {
  test("A.01: up is ready, says what to type next, and Ctrl-C ends all of it with 0", async () => {
    const running = startCli(up(), { group: true });
    await running.saying("Ctrl-C here");
    expect(running.out()).toContain(`nats://127.0.0.1:${port}`);
    expect(running.out()).toMatch(/npx cotal tail --as bob .*\n.*npx cotal send '#general' 'hello bob' --as alice/);
    ctrlC(running);
    const ran = await running.ended;
    expect(ran.code).toBe(0);
    await expectNothingLeft();
  });

  test("A.01: --json says ready once, with the address, and stopped at the end; nothing else", async () => {
    const running = await foreground();
    ctrlC(running);
    const items = (await running.ended).items();
    expect(items.map(({ kind }) => kind)).toEqual(["ready", "stopped"]);
    expect(items[0]).toMatchObject({ server: `nats://127.0.0.1:${port}`, port, space: "main", auth: "static", state });
  });

  test.skipIf(oldNode() === undefined)(
    "A.01: the machine's own older Node starts it, and one Ctrl-C is one",
    async () => {
      const node = oldNode() ?? "";
      const running = await foreground({ node });
      const sent = await cli(["send", "general", "x", "--as", "alice", "--state", state], { node });
      const usage = await cli(["send"], { node });
      ctrlC(running);
      const ran = await running.ended;
      expect([sent.code, usage.code, ran.code]).toEqual([0, 2, 0]);
      expect(ran.items().at(-1)?.kind).toBe("stopped");
      await expectNothingLeft();
    },
  );

  test.each(["SIGTERM", "SIGHUP"] as const)("%s ends it in order too", async (name) => {
    const running = await foreground();
    running.process.kill(name);
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft();
  });

  test("Ctrl-C while it starts leaves nothing behind", async () => {
    for (const wait of [30, 200, 500, 800]) {
      const running = startCli(up("--json"), { group: true });
      await sleep(wait);
      ctrlC(running);
      await running.ended;
      await expectNothingLeft();
    }
    expect((await cli(up("--detach"))).code).toBe(0);
  });

  test("a second Ctrl-C does not wait for a daemon that hangs", async () => {
    const running = await foreground();
    process.kill(plane.pid("provisioner"), "SIGSTOP");
    ctrlC(running);
    await sleep(800);
    expect(running.process.exitCode).toBeNull();
    ctrlC(running);
    expect((await running.ended).code).toBe(1);
    await expectNothingLeft();
  });

  test("A.01: a daemon that hangs does not keep Ctrl-C from ending all of it", async () => {
    const running = await foreground();
    process.kill(plane.pid("provisioner"), "SIGSTOP");
    ctrlC(running);
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft();
  });

  test("detach returns once ready; status and down find it; down leaves nothing and may be repeated", async () => {
    const started = await cli(up("--detach", "--json"));
    expect(started.items()).toMatchObject([{ kind: "ready", port }]);
    const [status] = await plane.json("status");
    expect(status).toMatchObject({ kind: "status", running: true, phase: "ready", auth: "static", space: "main" });
    expect((status?.["parts"] as Item[]).map(({ name, health }) => [name, health])).toEqual([
      ["broker", "ok"],
      ["provisioner", "ok"],
    ]);
    const [stopped] = await plane.json("down");
    expect(stopped).toMatchObject({ kind: "stopped", ran: true });
    await expectNothingLeft();
    const [again] = await plane.json("down");
    expect(again).toMatchObject({ kind: "stopped", ran: false });
    expect((await plane.run("status")).code).toBe(3);
  });

  test("a second up on the same state is refused; a second --detach is content with what runs", async () => {
    await cli(up("--detach"));
    const pid = plane.pid("broker");
    const second = await cli(up("--json"));
    expect([second.code, second.items()[0]?.["code"]]).toEqual([1, "already-exists"]);
    const detached = await cli(up("--detach", "--json"));
    expect([detached.code, detached.items()[0]?.kind]).toEqual([0, "ready"]);
    const other = await cli(["up", "--state", state, "--port", String(await freePort()), "--detach", "--json"]);
    expect([other.code, other.items()[0]?.["code"]]).toEqual([1, "already-exists"]);
    expect(plane.pid("broker")).toBe(pid);
  });

  test("two that start at once: one runs, the other is refused", async () => {
    const both = await Promise.all([cli(up("--detach", "--json")), cli(up("--detach", "--json"))]);
    const kinds = both.map((ran) => `${ran.code} ${String(ran.items()[0]?.["code"] ?? ran.items()[0]?.kind)}`);
    // On a slow machine the later one finds a plane that is ready, and is content with it.
    expect(kinds).toContain("0 ready");
    expect(kinds.filter((kind) => kind !== "0 ready" && kind !== "1 already-exists")).toEqual([]);
    expect(leftOf(state).filter((line) => line.includes("nats-server"))).toHaveLength(1);
  });

  test("the port is remembered for the state", async () => {
    await cli(up("--detach"));
    await plane.run("down");
    const again = await cli(["up", "--detach", "--json", "--state", state]);
    expect(again.items()[0]).toMatchObject({ kind: "ready", port });
  });
});

describe("what is refused", () => {
  test("a port that another program has: the refusal names a free one, and nothing is left", async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(port, "127.0.0.1", resolve));
    const ran = await cli(up("--json"));
    await new Promise((resolve) => other.close(resolve));
    const [error] = ran.items();
    expect([ran.code, error?.["code"]]).toEqual([1, "already-exists"]);
    expect(String(error?.["next"])).toMatch(/--port \d+/);
    await expectNothingLeft();
  });

  test("auth mode user: unimplemented, with what to use", async () => {
    const ran = await cli(up("--auth", "user", "--json"));
    expect([ran.code, ran.items()[0]]).toMatchObject([1, { code: "unimplemented", next: "use --auth static" }]);
  });

  test("an authenticated state is never opened by a flag", async () => {
    await cli(up("--detach"));
    await plane.run("down");
    const ran = await cli(up("--open", "--detach", "--json"));
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
    await expectNothingLeft();
  });

  test("PH.01: a broker below the floor is refused before anything is minted, with what to do", async () => {
    const binary = join(state, "old-server");
    writeFileSync(binary, "#!/bin/sh\necho nats-server: v2.11.9\n");
    chmodSync(binary, 0o755);
    const ran = await cli(up("--json"), { env: { NATS_SERVER_BIN: binary } });
    const [error] = ran.items();
    expect([ran.code, error?.["code"]]).toEqual([1, "failed-precondition"]);
    expect(`${String(error?.["message"])} ${String(error?.["next"])}`).toMatch(/2\.12/);
    expect(readdirSync(state)).not.toContain("spaces");
    const doctor = await cli(["doctor", "--json", "--state", state], { env: { NATS_SERVER_BIN: binary } });
    expect(doctor.items()).toContainEqual(expect.objectContaining({ kind: "finding", check: "broker binary" }));
  });

  test("a broker binary that is not there is named, with what to do", async () => {
    const ran = await cli(up("--json"), { env: { NATS_SERVER_BIN: join(state, "nowhere") } });
    expect(ran.items()[0]).toMatchObject({ kind: "error", code: "failed-precondition", next: matching(/npm ci/) });
  });
});

describe("what it survives", () => {
  /** Sends as fast as receipts come until told to stop; the texts that were acknowledged. */
  async function traffic(run: () => Promise<void>): Promise<{ readonly acked: string[]; readonly failed: number }> {
    await plane.json("history", "general", "--as", "alice");
    const file = join(state, "spaces", "main", "agents", "alice.creds");
    const session = await connect({ servers: [`127.0.0.1:${port}`], credentials: { kind: "static", file } });
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
    const running = await foreground();
    const tail = plane.start("tail", "--as", "bob", "--channel", "general", "--json", "--timeout", "120");
    await tail.saying('"kind":"joined"');
    const first = plane.pid("broker");
    const { acked } = await traffic(async () => {
      await sleep(500);
      process.kill(first, "SIGKILL");
      await running.saying('"kind":"restarted","child":"broker"');
    });
    const kept = textsOf(await plane.json("history", "general", "--limit", "10000", "--as", "alice"));
    expect(acked.filter((text) => !kept.includes(text))).toEqual([]);
    expect(new Set(kept).size).toBe(kept.length);
    const last = acked.at(-1) ?? "";
    const shown = await eventually(
      () => textsOf(tail.items()),
      (texts) => texts.includes(last),
    );
    // The channel is durable: what came while the link was down is read back.
    expect(acked.filter((text) => !shown.includes(text))).toEqual([]);
    tail.process.kill("SIGINT");
    await tail.ended;
    expect(running.err().match(/"kind":"died","child":"broker"/g)).toHaveLength(1);
    expect(plane.pid("broker")).not.toBe(first);
    const [status] = await plane.json("status");
    expect((status?.["parts"] as Item[])[0]).toMatchObject({ name: "broker", health: "ok", restarts: 1 });
    ctrlC(running);
    expect((await running.ended).code).toBe(0);
    await expectNothingLeft();
  }, 90_000);

  test("kill -9 of the provisioner during traffic: sends go on, it comes back, and mint works again", async () => {
    const running = await foreground();
    const first = plane.pid("provisioner");
    const { acked, failed } = await traffic(async () => {
      await sleep(200);
      process.kill(first, "SIGKILL");
      await running.saying('"kind":"restarted","child":"provisioner"', 40_000);
    });
    expect(failed).toBe(0);
    expect(acked.length).toBeGreaterThan(20);
    expect(plane.pid("provisioner")).not.toBe(first);
    const minted = await eventually(
      () => plane.run("mint", "--owner", "acme", "--actor", "after", "--json"),
      ({ code }) => code === 0,
    );
    expect(minted.items()[0]).toMatchObject({ kind: "minted" });
    expect((await plane.run("status")).code).toBe(0);
  }, 90_000);

  test("kill -9 of the launcher: its daemon ends, status and doctor say so, and up takes over what is left", async () => {
    const running = await foreground();
    await plane.json("send", "general", "before", "--as", "alice");
    const broker = plane.pid("broker");
    process.kill(plane.pid("launcher"), "SIGKILL");
    await running.ended;
    const [status] = (await plane.run("status", "--json")).items();
    expect(status).toMatchObject({ running: false, crashed: true });
    const doctor = await plane.run("doctor", "--json");
    expect(doctor.code).toBe(5);
    expect(doctor.items()[0]).toMatchObject({ kind: "finding", check: "launcher", next: matching(/cotal up/) });
    // Its clients are still served by the broker that was left.
    expect((await plane.run("send", "general", "meanwhile", "--as", "alice")).code).toBe(0);
    const again = await cli(up("--detach", "--json"));
    expect(again.code).toBe(0);
    expect(plane.pid("broker")).not.toBe(broker);
    const kept = textsOf(await plane.json("history", "general", "--as", "alice"));
    expect(kept).toEqual(["before", "meanwhile"]);
    await plane.run("down");
    await expectNothingLeft();
  }, 60_000);

  test("kill -9 of everything at once: the same state comes up again with what it held", async () => {
    await cli(up("--detach"));
    await plane.json("send", "general", "kept", "--as", "alice");
    const pids = (["launcher", "broker", "provisioner"] as const).map((name) => plane.pid(name));
    for (const pid of pids) process.kill(pid, "SIGKILL");
    await expectNothingLeft();
    expect((await cli(up("--detach"))).code).toBe(0);
    expect(textsOf(await plane.json("history", "general", "--as", "alice"))).toEqual(["kept"]);
    expect((await plane.run("doctor")).code).toBe(0);
  }, 60_000);

  test("a record that names somebody else's process: nobody is signalled, and up works", async () => {
    const bystander = startCli(["up", "--state", join(state, "other"), "--port", String(await freePort()), "--json"]);
    await bystander.saying('"kind":"ready"');
    const record = JSON.parse(readFileSync(join(state, "other", "run", "plane.json"), "utf8")) as {
      launcher: { start: string };
      children: { process: { start: string } }[];
    };
    record.launcher.start = "1";
    for (const child of record.children) child.process.start = "1";
    await cli(up("--detach"));
    await plane.run("down");
    writeFileSync(join(state, "run", "plane.json"), JSON.stringify(record));
    expect((await plane.run("status")).code).toBe(3);
    expect((await plane.run("down")).code).toBe(0);
    expect((await cli(up("--detach"))).code).toBe(0);
    expect((await cli(["status", "--state", join(state, "other")])).code).toBe(0);
    bystander.process.kill("SIGINT");
    expect((await bystander.ended).code).toBe(0);
  }, 60_000);
});

describe("doctor", () => {
  const findingsOf = async (): Promise<{
    readonly code: number | null;
    readonly checks: string[];
    readonly items: Item[];
  }> => {
    const ran = await plane.run("doctor", "--json");
    const items = ran.items().filter(({ kind }) => kind === "finding");
    return { code: ran.code, checks: items.map(({ check }) => String(check)), items };
  };

  test("A.08: nothing runs: findings with what to do, exit 5, no crash", async () => {
    const { code, items } = await findingsOf();
    expect(code).toBe(5);
    expect(items[0]).toMatchObject({ check: "daemons", level: "error", next: matching(/cotal up/) });
  });

  test("A.08: a frozen daemon, a dead one and a dead broker are each found, and health returns", async () => {
    await cli(up("--detach"));
    expect((await findingsOf()).code).toBe(0);

    const provisioner = plane.pid("provisioner");
    process.kill(provisioner, "SIGSTOP");
    const frozen = await findingsOf();
    process.kill(provisioner, "SIGCONT");
    expect([frozen.code, frozen.checks]).toEqual([5, including("provisioner", "space")]);

    // A frozen launcher restarts nothing, so what is dead stays dead.
    process.kill(plane.pid("launcher"), "SIGSTOP");
    process.kill(provisioner, "SIGKILL");
    const dead = await findingsOf();
    expect(dead.code).toBe(5);
    expect(dead.items.find(({ check }) => check === "provisioner")?.["message"]).toMatch(/not running/);

    process.kill(plane.pid("broker"), "SIGKILL");
    const gone = await findingsOf();
    expect([gone.code, gone.checks]).toEqual([5, including("broker", "provisioner")]);
    expect(gone.items.every(({ next }) => typeof next === "string" && next !== "")).toBe(true);

    process.kill(plane.pid("launcher"), "SIGCONT");
    const healed = await eventually(findingsOf, ({ code }) => code === 0, 60_000);
    expect(healed.code).toBe(0);
  }, 120_000);
});

describe("doctor, the stores and the limits", () => {
  test("A.08: an inbox that is missing is found, by the agent that misses it", async () => {
    await cli(up("--detach"));
    const [minted] = await plane.json("mint", "--owner", "acme", "--actor", "x");
    const who = String(minted?.["principal"]);
    await removeInbox(state, `nats://127.0.0.1:${port}`, who, String(minted?.["uid"]));
    const ran = await plane.run("doctor", "--json");
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
    const server = `nats://127.0.0.1:${port}`;
    await cli(up("--detach"));
    await plane.run("down");
    const config = join(state, "broker", "nats-server.conf");
    writeFileSync(config, readFileSync(config, "utf8").replace("max_control_line: 65536", "max_control_line: 4096"));
    const { path } = findBroker(process.env);
    const broker = spawn(path, ["-c", config], { stdio: "ignore" });
    try {
      const found = await eventually(
        () => plane.run("doctor", "--server", server, "--json"),
        (ran) => ran.out.includes("max_control_line"),
      );
      expect(found.code).toBe(5);
      expect(found.items()).toContainEqual(
        expect.objectContaining({ check: "broker limits", message: matching(/4096, and 65536 are needed/) }),
      );
      const added = await plane.run("space", "add", "lab", "--server", server, "--json");
      expect([added.code, added.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
      expect(readdirSync(join(state, "spaces"))).toEqual(["main"]);
    } finally {
      const ended = new Promise((resolve) => broker.once("exit", resolve));
      broker.kill("SIGKILL");
      await ended;
    }
  });

  test("a daemon that can't serve its space: up says what it waits for, and why it gave up", async () => {
    await cli(up("--detach"));
    await plane.run("down");
    const file = join(state, "spaces", "main", "provisioner", "space.json");
    const whole = readFileSync(file, "utf8");
    writeFileSync(file, "{}");
    const running = startCli(up("--json"), { group: true });
    await running.saying('"kind":"waiting","child":"provisioner"');
    expect(running.err()).toContain("space.json");
    ctrlC(running);
    await running.ended;
    await expectNothingLeft();
    writeFileSync(file, whole);
    expect((await cli(up("--detach"))).code).toBe(0);
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
    await cli(up("--detach"));
    await plane.json("mint", "--owner", "acme", "--actor", "x");
    const record = JSON.parse(readFileSync(join(state, "run", "plane.json"), "utf8")) as {
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
    const logs = readdirSync(join(state, "logs")).map((name) => readFileSync(join(state, "logs", name), "utf8"));
    const lines = leftOf(state);
    expect(lines.length).toBeGreaterThan(1);
    const secrets = /S[OAU][A-Z2-7]{50}|eyJ[\w-]{20,}\.[\w-]{20,}\./;
    expect([...logs, ...lines].filter((text) => secrets.test(text))).toEqual([]);
    const entries = readFileSync(join(state, "logs", "provisioner.log"), "utf8")
      .trim()
      .split("\n");
    expect(entries.map((line) => (JSON.parse(line) as { service: string }).service)).toContain("provisioner");
  });
});

test("no test of this file may leave a plane behind", async () => {
  const other = await startPlane();
  expect(recordedPid(other.state, "broker")).toBeGreaterThan(0);
  await other.stop();
  expect(
    await eventually(
      () => leftOf(other.state),
      (left) => left.length === 0,
      5000,
    ),
  ).toEqual([]);
  endAll();
  rmSync(other.state, { recursive: true, force: true });
});
