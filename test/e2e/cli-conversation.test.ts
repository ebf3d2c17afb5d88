/** A space from `cotal up`, and agents that talk in it through the CLI: every command, its JSON and its codes. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { renewIfSoon } from "../../cli/identity.ts";
import { resolveTarget } from "../../cli/target.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type TestPlane, cli, eventually, including, matching, startCli, startPlane, textsOf } from "../support/cli.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--auth", "static");
});
afterAll(() => plane.stop());

/** Starts a tail that has joined what it was told to. */
async function tailing(...args: string[]) {
  const tail = plane.start("tail", "--json", ...args);
  await tail.saying('"kind":"joined"');
  return tail;
}

describe("talking", () => {
  test("A.01: two agents talk: what one sends, the other's tail shows, live, once, from the sender", async () => {
    const tail = await tailing("--as", "bob", "--channel", "general", "--count", "2", "--timeout", "20");
    const [first] = await plane.json("send", "#general", "hello", "bob", "--as", "alice");
    await plane.json("send", "general", "again", "--as", "alice");
    const ran = await tail.ended;
    const items = ran.items();
    expect(ran.code).toBe(0);
    expect(textsOf(items)).toEqual(["hello bob", "again"]);
    expect(items[0]).toMatchObject({ kind: "channel", channel: "general", historical: false, from: { name: "alice" } });
    expect(items[0]?.["id"]).toBe(first?.["id"]);
    expect(JSON.stringify(items[0]?.["from"])).toMatch(/"id":"u_[a-z2-7]{26}\.alice"/);
    expect(first).toMatchObject({ kind: "sent", channel: "general", stream: "CHAT_main", duplicate: false });
  });

  test("a direct message reaches one who was away, by principal and by name", async () => {
    const away = await plane.json("tail", "--as", "dora", "--dm", "--timeout", "0.3");
    expect(away).toEqual([]);
    const dora = (
      await plane.json("mint", "--owner", "acme", "--actor", "eve", "--out", join(plane.state, "eve.creds"))
    )[0];
    const [sent] = await plane.json("dm", String(dora?.["principal"]), "while you were away", "--as", "alice");
    expect(sent).toMatchObject({ kind: "sent", to: dora?.["principal"], stream: "DM_main" });
    const got = await plane.json(
      "tail",
      "--creds",
      join(plane.state, "eve.creds"),
      "--dm",
      "--count",
      "1",
      "--timeout",
      "20",
    );
    expect(got[0]).toMatchObject({ kind: "dm", from: { name: "alice" }, historical: false });
    expect(got[0]).not.toHaveProperty("channel");

    const tail = await tailing("--as", "finn", "--channel", "finns", "--dm", "--count", "1", "--timeout", "20");
    await plane.json("dm", "finn", "by name", "--as", "alice");
    expect(textsOf((await tail.ended).items())).toEqual(["by name"]);
  });

  test("what was printed is acknowledged: a second tail does not show it again", async () => {
    await plane.json("tail", "--as", "gus", "--dm", "--timeout", "0.3");
    const gus = await principalOf("gus");
    await plane.json("dm", gus, "one", "--as", "alice");
    await plane.json("dm", gus, "two", "--as", "alice");
    const first = await plane.json("tail", "--as", "gus", "--dm", "--count", "1", "--timeout", "20");
    const second = await plane.json("tail", "--as", "gus", "--dm", "--count", "1", "--timeout", "20");
    expect([...textsOf(first), ...textsOf(second)].toSorted()).toEqual(["one", "two"]);
    expect(await plane.json("tail", "--as", "gus", "--dm", "--timeout", "2")).toEqual([]);
  });

  test("two live instances of one name are refused, and both are listed; nothing is sent", async () => {
    const creds = ["t1", "t2"].map((actor) => join(plane.state, `${actor}.creds`));
    const tails = [];
    for (const [index, actor] of ["t1", "t2"].entries()) {
      await plane.json(
        "mint",
        "--owner",
        "acme",
        "--actor",
        actor,
        "--name",
        "twin",
        "--subscribe",
        "twins",
        "--out",
        creds[index] ?? "",
      );
      tails.push(await tailing("--creds", creds[index] ?? "", "--channel", "twins", "--timeout", "30"));
    }
    await eventually(
      () => plane.json("who"),
      (members) => members.filter(({ name }) => name === "twin").length === 2,
    );
    const ran = await plane.run("dm", "twin", "which of you", "--as", "alice", "--json");
    const [error] = ran.items();
    expect(ran.code).toBe(1);
    expect(error).toMatchObject({ kind: "error", code: "conflict" });
    expect(String(error?.["message"])).toMatch(/\.t1\b.*\.t2\b/);
    for (const tail of tails) tail.process.kill("SIGINT");
    const ends = await Promise.all(tails.map((tail) => tail.ended));
    expect(ends.map((end) => [end.code, end.out])).toEqual([
      [0, ""],
      [0, ""],
    ]);
  });

  test("a name that nobody has is not found, after a whole read of the roster", async () => {
    const ran = await plane.run("dm", "nobody", "hello", "--as", "alice", "--json");
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([1, "not-found"]);
  });

  test("A.12 W81.15 W81.16 W81.17: a request to a role waits, is taken back, is taken by a holder, and its sender is told", async () => {
    const planes = async () => (await plane.run("status", "--json")).items()[0]?.["planes"];
    await eventually(planes, (seen) => JSON.stringify(seen).includes('"bound"'));
    expect((await plane.run("status")).out).toContain("delivery plane: served");
    const file = join(plane.state, "reviewer.creds");
    await plane.json("mint", "--owner", "acme", "--actor", "holder", "--role", "reviewer", "--out", file);
    const [asked] = await plane.json("ask", "reviewer", "never mind", "--as", "alice");
    expect(asked).toMatchObject({ kind: "sent", role: "reviewer", stream: "TASK_main" });
    expect(asked).not.toHaveProperty("waitsFor");
    const seq = String(asked?.["seq"]);
    const id = String(asked?.["id"]);
    const [waits] = await plane.json("task", "status", seq, "--as", "alice");
    expect(waits).toEqual({ kind: "task", seq: Number(seq), state: "waiting", role: "reviewer" });
    const [cancelled] = await plane.json("task", "cancel", seq, "--id", id, "--as", "alice");
    expect(cancelled).toMatchObject({ kind: "task", id, state: "cancelled", removal: "deleted" });
    const stranger = await plane.run("task", "status", seq, "--as", "bob");
    expect([stranger.code, stranger.out]).toEqual([1, matching(/nothing of yours/)]);

    const tail = plane.start("tail", "--json", "--role", "--creds", file, "--count", "1", "--timeout", "30");
    const [second] = await plane.json("ask", "reviewer", "please look", "--as", "alice");
    const shown = (await tail.ended).items();
    expect(textsOf(shown)).toEqual(["please look"]);
    expect(shown.find(({ kind }) => kind === "anycast")).toMatchObject({ role: "reviewer", seq: second?.["seq"] });
    const late = await plane.run("task", "cancel", String(second?.["seq"]), "--as", "alice");
    expect([late.code, late.out]).toEqual([1, matching(/was taken by holder/)]);
    const told = await plane.json("tail", "--dm", "--as", "alice", "--count", "1", "--timeout", "20");
    expect(told.find(({ kind }) => kind === "dm")).toMatchObject({
      notice: { event: "taken", seq: second?.["seq"], taker: { name: "holder" } },
    });
    expect((await plane.run("task", "status", "x", "--as", "alice")).code).toBe(2);
  });

  test("who lists those who are here and not the commands that come and go", async () => {
    const tail = await tailing("--as", "hana", "--timeout", "30");
    const here = await eventually(
      () => plane.json("who"),
      (all) => all.some(({ name }) => name === "hana"),
    );
    expect(here.find(({ name }) => name === "hana")).toMatchObject({ kind: "member", status: "idle", live: true });
    expect(here.map(({ name }) => name)).not.toContain("operator");
    tail.process.kill("SIGTERM");
    expect((await tail.ended).code).toBe(0);
    const left = await eventually(
      () => plane.json("who", "--all"),
      (all) => all.every(({ name, live }) => name !== "hana" || live === false),
    );
    expect(left.find(({ name }) => name === "hana")).toMatchObject({ status: "offline", live: false });
  });

  test("history reads back, oldest first, marked historical, cut to a limit", async () => {
    for (const text of ["a", "b", "c"]) await plane.json("send", "past", text, "--as", "alice");
    const items = await plane.json("history", "#past", "--limit", "2", "--as", "bob");
    expect(textsOf(items)).toEqual(["b", "c"]);
    expect(items.map(({ historical }) => historical)).toEqual([true, true]);
    expect(await plane.json("history", "empty-one", "--as", "bob")).toEqual([]);
  });

  test("the text can come from standard input, and may begin with a dash after --", async () => {
    const piped = await cli(["send", "piped", "-", "--as", "alice", "--state", plane.state], {
      input: "from a pipe\n",
    });
    const dashed = await cli(["send", "--as", "alice", "--state", plane.state, "piped", "--", "-1 for that"]);
    expect([piped.code, dashed.code]).toEqual([0, 0]);
    expect(textsOf(await plane.json("history", "piped", "--as", "bob"))).toEqual(["from a pipe", "-1 for that"]);
  });
});

async function principalOf(actor: string): Promise<string> {
  const all = await plane.json("who", "--all");
  return String(all.find(({ name }) => name === actor)?.["id"]);
}

describe("credentials", () => {
  test("mint writes a file for its owner alone, says what it gave, and never overwrites", async () => {
    const file = join(plane.state, "worker.creds");
    const args = ["mint", "--owner", "acme", "--actor", "worker", "--subscribe", "general,team.>", "--role", "dev"];
    const [minted] = await plane.json(...args, "--out", file);
    expect(minted).toMatchObject({
      kind: "minted",
      file,
      subscribe: ["general", "team.>"],
      publish: ["general", "team.>"],
      role: "dev",
    });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(Number(minted?.["expires"])).toBeGreaterThan(Date.now() / 1000 + 86_400);
    const before = readFileSync(file, "utf8");
    expect((await plane.run(...args, "--out", file)).code).toBe(1);
    expect(readFileSync(file, "utf8")).toBe(before);
  });

  test("mint changes no folder outside the state, and a run that died is repeated with the same key", async () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-out-"));
    try {
      chmodSync(folder, 0o755);
      const file = join(folder, "a.creds");
      const args = ["mint", "--owner", "acme", "--actor", "repeat", "--out"] as const;
      const pending = join(plane.state, "spaces", "main", "agents", "pending");
      const key = newKey("user");
      mkdirSync(pending, { recursive: true });
      const name = createHash("sha256").update(file).digest("hex").slice(0, 32);
      writeFileSync(join(pending, `${name}.nk`), key.seedText());
      const [minted] = await plane.json(...args, file);
      expect(minted).toMatchObject({ kind: "minted", file });
      expect(readCredsFile(file).view.userKey).toBe(key.publicKey);
      expect(statSync(folder).mode & 0o777).toBe(0o755);
      expect(readdirSync(folder)).toEqual(["a.creds"]);
      expect(readdirSync(pending)).toEqual([]);
      expect((await plane.run(...args, join(folder, "missing", "a.creds"))).code).toBe(1);
      expect(readdirSync(folder)).toEqual(["a.creds"]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("a kept credential is renewed before it ends, and stays the same identity", async () => {
    await plane.json("send", "general", "x", "--as", "renewed");
    const file = join(plane.state, "spaces", "main", "agents", "renewed.creds");
    const before = readCredsFile(file).view;
    const target = resolveTarget({ state: plane.state });
    await renewIfSoon(target, file, Date.now() / 1000);
    expect(readCredsFile(file).view).toEqual(before);
    await sleep(1100);
    await renewIfSoon(target, file, (before.expires ?? 0) - 3600);
    const { expires = 0, ...after } = readCredsFile(file).view;
    expect({ ...after, expires: before.expires }).toEqual(before);
    expect(expires).toBeGreaterThan(before.expires ?? 0);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect((await plane.run("send", "general", "y", "--as", "renewed")).code).toBe(0);
  });

  test("a post outside the list is refused as such, not as a timeout; so is a join", async () => {
    const file = join(plane.state, "narrow.creds");
    await plane.json("mint", "--owner", "acme", "--actor", "narrow", "--out", file);
    const post = await plane.run("send", "secret", "x", "--creds", file, "--json");
    const read = await plane.run(
      "tail",
      "--channel",
      "secret",
      "--count",
      "1",
      "--timeout",
      "20",
      "--creds",
      file,
      "--json",
    );
    const past = await plane.run("history", "secret", "--creds", file, "--json");
    expect([post, read, past].map((ran) => [ran.code, ran.items()[0]?.["code"]])).toEqual([
      [1, "permission-denied"],
      [1, "permission-denied"],
      [1, "permission-denied"],
    ]);
  });

  test("deprovision: the credential is refused from then on, a live connection is closed, a new one works", async () => {
    const file = join(plane.state, "ended.creds");
    const [minted] = await plane.json("mint", "--owner", "acme", "--actor", "ended", "--out", file);
    const tail = await tailing("--creds", file, "--timeout", "60");
    const [gone] = await plane.json("deprovision", String(minted?.["principal"]));
    expect(gone).toMatchObject({ kind: "deprovisioned", principal: minted?.["principal"], uid: minted?.["uid"] });
    const end = await tail.ended;
    expect([end.code, end.items().at(-1)?.["kind"]]).toEqual([1, "error"]);
    const refused = await plane.run("send", "general", "x", "--creds", file, "--json");
    expect([refused.code, refused.items()[0]?.["code"]]).toEqual([1, "unauthenticated"]);
    expect((await plane.run("deprovision", String(minted?.["principal"]))).code).toBe(1);
    const again = join(plane.state, "again.creds");
    const [successor] = await plane.json("mint", "--owner", "acme", "--actor", "ended", "--out", again);
    expect(successor?.["uid"]).not.toBe(minted?.["uid"]);
    expect((await plane.run("send", "general", "x", "--creds", again)).code).toBe(0);
  });

  test("no file of the state folder is readable by others, and no command line holds a seed", async () => {
    const ran = await cli(["status", "--json", "--state", plane.state]);
    expect(ran.out).not.toMatch(/S[OAU][A-Z2-7]{50}/);
    expect(statSync(plane.state).mode & 0o077).toBe(0);
    expect(statSync(join(plane.state, "trust", "operator.nk")).mode & 0o077).toBe(0);
  });
});

describe("the space", () => {
  test("channel settings are set, shown and taken away", async () => {
    const [set] = await plane.json(
      "channel",
      "set",
      "#ops",
      "--class",
      "live",
      "--window",
      "24h",
      "--description",
      "on call",
    );
    expect(set).toMatchObject({
      kind: "channel",
      channel: "ops",
      config: { deliveryClass: "live", replayWindow: "24h" },
    });
    await plane.json("channel", "set", "ops", "--window", "none");
    const [defaults, ...channels] = await plane.json("channels");
    expect(defaults?.kind).toBe("channel-defaults");
    const ops = channels.find(({ channel }) => channel === "ops");
    expect(ops).toMatchObject({
      effective: { deliveryClass: "live", replay: true },
      config: { description: "on call" },
    });
    expect(ops?.["config"]).not.toHaveProperty("replayWindow");
  });

  test("limits are shown, set and lifted", async () => {
    await plane.json("limits", "set", "dm", "--age", "7d", "--count", "500");
    const [set] = await plane.json("limits", "show");
    expect(set).toMatchObject({ kind: "limits", dm: { maxAgeSeconds: 604_800, maxPerSubject: 500 } });
    const [lifted] = await plane.json("limits", "set", "dm", "--age", "none", "--count", "none");
    expect(lifted).toMatchObject({ dm: { maxAgeSeconds: null, maxPerSubject: null } });
  });

  test("A.04: a second space is added to the running broker, and nothing of one is in the other", async () => {
    const [added] = await plane.json("space", "add", "lab");
    expect(added).toMatchObject({ kind: "space", space: "lab", auth: "static" });
    await plane.json("send", "general", "only in lab", "--as", "alice", "--space", "lab");
    expect(textsOf(await plane.json("history", "general", "--as", "alice", "--space", "lab"))).toEqual(["only in lab"]);
    expect(textsOf(await plane.json("history", "general", "--as", "alice"))).not.toContain("only in lab");
    const foreign = join(plane.state, "spaces", "lab", "agents", "alice.creds");
    expect((await plane.run("send", "general", "x", "--creds", foreign, "--json")).code).toBe(1);
  });

  test("W10.01: a join link brings its space and channels; --server takes it too", async () => {
    const link = `cotal://127.0.0.1:${plane.port}/main?channel=linked,team.x`;
    await plane.json("send", "team.x", "in the link", "--as", "alice");
    const joined = await plane.run("join", link, "--as", "bob", "--count", "1", "--timeout", "20", "--json");
    expect([joined.code, textsOf(joined.items())]).toEqual([0, ["in the link"]]);
    expect(joined.err).toContain('"channel":"linked"');
    const tailed = await plane.run(
      "tail",
      "--server",
      link,
      "--as",
      "bob",
      "--count",
      "1",
      "--timeout",
      "20",
      "--json",
    );
    expect(textsOf(tailed.items())).toEqual(["in the link"]);
  });
});

describe("a durable channel", () => {
  test("W4.04 W7.13 who was away gets what was posted meanwhile; leave ends it, and lists what there is", async () => {
    const here = await plane.run("tail", "--as", "dora", "--channel", "kept", "--timeout", "1", "--json");
    expect(here.err).toContain('"state":"joined durable"');
    await plane.json("send", "kept", "while away", "--as", "alice");
    const back = await plane.run(
      "tail",
      "--as",
      "dora",
      "--channel",
      "kept",
      "--count",
      "1",
      "--timeout",
      "20",
      "--json",
    );
    expect(textsOf(back.items())).toEqual(["while away"]);
    expect((await plane.run("leave", "--as", "dora", "--json")).items()).toMatchObject([
      { kind: "membership", channel: "kept", state: "joined" },
    ]);
    const left = await plane.run("leave", "#kept", "--as", "dora", "--json");
    expect(left.items()).toMatchObject([{ kind: "left", channel: "kept", wasMember: true, state: "left" }]);
    expect((await plane.run("leave", "--as", "dora", "--json")).items()).toEqual([]);
  });
});

describe("the contract of scripts", () => {
  test.each([
    ["an unknown command", ["nonsense"]],
    ["no command", []],
    ["a missing argument", ["send", "#general"]],
    ["a pattern where a channel is due", ["send", "team.>", "x", "--as", "alice"]],
    ["an unknown option", ["who", "--nope"]],
    ["a number that is none", ["tail", "--count", "many", "--as", "alice"]],
    ["nobody who acts", ["send", "#general", "x"]],
    ["an actor that is no token", ["send", "#general", "x", "--as", "a.b"]],
    ["two who act", ["send", "#general", "x", "--as", "a", "--creds", "b"]],
    ["an empty text", ["send", "#general", "", "--as", "alice"]],
    ["a role that is none", ["ask", "a.b", "x", "--as", "alice"]],
    ["nothing to set", ["limits", "set", "dm"]],
    ["a mode that does not exist", ["up", "--auth", "magic"]],
    ["--role without a role", ["tail", "--role", "--as", "alice"]],
  ])("A.08: %s ends with 2 and says what to do, in both forms", async (_what, args) => {
    const [text, json] = await Promise.all([plane.run(...args), plane.run(...args, "--json")]);
    expect([text.code, json.code]).toEqual([2, 2]);
    expect(text.err).toMatch(/(?:^|\n)cotal: bad-request: .+\n {2}next: .+\n$/);
    expect(json.items()).toEqual([{ kind: "error", code: "bad-request", message: matching(/./), next: matching(/./) }]);
  });

  test("A.08: a broker that is not there ends with 3", async () => {
    const ran = await plane.run("who", "--server", "127.0.0.1:1", "--json");
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([3, "unavailable"]);
    const tail = await plane.run("tail", "--as", "bob", "--server", "127.0.0.1:1", "--json");
    expect([tail.code, tail.items()[0]?.["code"]]).toEqual([3, "unavailable"]);
  });

  test("A.08: tail ends with 4 when its time is up before its count, and with 0 when no count was asked", async () => {
    const counted = await plane.run("tail", "--as", "bob", "--channel", "quiet", "--count", "1", "--timeout", "0.5");
    const plain = await plane.run("tail", "--as", "bob", "--channel", "quiet", "--timeout", "0.5");
    expect([counted.code, plain.code]).toEqual([4, 0]);
  });

  test("A.08: doctor finds nothing in a space that is well", async () => {
    const ran = await plane.run("doctor", "--json");
    expect(ran.items()).toEqual([{ kind: "doctor", findings: 0, checked: including("daemons", "space") }]);
    expect(ran.code).toBe(0);
  });

  test("output to a pipe has no colour, and a control character of a message is shown, not obeyed", async () => {
    await plane.json("send", "rude", "\u001b[2J\u001b]0;title\u0007gone\nalice: forged", "--as", "alice");
    const ran = await plane.run("history", "rude", "--as", "bob");
    expect(ran.out).not.toContain("\u001b");
    expect(ran.out).toContain("\\u{1b}[2J");
    expect(ran.out.split("\n")[1]).toMatch(/^ {2}alice: forged/);
  });

  test.skipIf(!hasTerminal())("on a terminal there is colour, and none under NO_COLOR", () => {
    const line = `"${process.execPath}" cli/bin.js status --state "${plane.state}"`;
    expect(onTerminal(line)).toContain("\u001b[32m");
    expect(onTerminal(`NO_COLOR=1 ${line}`)).not.toContain("\u001b[");
  });

  test("a reader that goes away ends the command quietly", async () => {
    const tail = startCli([
      "tail",
      "--as",
      "bob",
      "--channel",
      "general",
      "--state",
      plane.state,
      "--json",
      "--timeout",
      "30",
    ]);
    await tail.saying('"kind":"joined"');
    tail.process.stdout?.destroy();
    await plane.json("send", "general", "nobody reads this", "--as", "alice");
    expect((await tail.ended).code).toBe(0);
  });
});

/** `script` of util-linux gives a command a terminal. */
function hasTerminal(): boolean {
  return spawnSync("script", ["--version"]).status === 0;
}

function onTerminal(line: string): string {
  const { NO_COLOR: _no, FORCE_COLOR: _force, CI: _ci, ...env } = process.env;
  return spawnSync("script", ["-qec", line, "/dev/null"], {
    encoding: "utf8",
    env: { ...env, TERM: "xterm-256color" },
    stdio: ["ignore", "pipe", "pipe"],
  }).stdout;
}
