/** Mistakes that people make at the command line: each is told as what it is, with what to do. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { keyFromSeed } from "../../shared/trust/keys.ts";
import { Account } from "../../shared/grants/row.ts";
import { dotForm, drawNonce } from "../../shared/protocol/base/principals.ts";
import { randomBytes } from "node:crypto";
import { formatCreds, parseCreds, readCredsFile } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { renewIfSoon } from "../../cli/identity.ts";
import { resolveTarget } from "../../cli/target.ts";
import { type TestPlane, cli, eventually, matching, startPlane, textsOf } from "../support/cli.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--auth", "static");
});
afterAll(() => plane.stop());

const at = (name: string): string => join(plane.state, name);

/** An empty folder of its own. */
function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-mistakes-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function minted(
  actor: string,
  ...args: string[]
): Promise<{ readonly file: string; readonly principal: string }> {
  const file = at(`${actor}.creds`);
  const [item] = await plane.json("mint", "--owner", "acme", "--actor", actor, "--out", file, ...args);
  return { file, principal: String(item?.["principal"]) };
}

/** The error that a command ends with under `--json`: its only line. */
async function refused(...args: string[]) {
  const ran = await plane.run(...args, "--json");
  const items = ran.items();
  expect(items.map(({ kind }) => kind)).toEqual(["error"]);
  const [item] = items;
  return { exit: ran.code, code: item?.["code"], message: String(item?.["message"]), next: String(item?.["next"]) };
}

describe("channels", () => {
  test("A.08: a shell ate '#general': the refusal says to quote it", async () => {
    const error = await refused("send");
    expect([error.exit, error.code]).toEqual([2, "bad-request"]);
    expect(error.next).toContain("'#general'");
  });

  test.each([
    [["dm", "bob"], /^write it like cotal dm \[options\] <who> <text\.\.\.>$/],
    [["actor", "rotate"], /^write it like cotal actor rotate \[options\] <who>$/],
    [["dm", "bob", "x", "--loud"], /^run cotal dm --help$/],
    [["join", "general"], /cotal tail --channel/],
    [["task", "status", "x7f"], /cotal trace ID/],
  ])("A.08: %j is a wrong use, and it is said how that command is written", async (args, how) => {
    const error = await refused(...args);
    expect([error.exit, error.code]).toEqual([2, "bad-request"]);
    expect(error.next).toMatch(how);
  });

  test.each([
    ["#team.>", "pattern"],
    ["#a..b", "empty segment"],
    ["", "empty"],
  ])("A.08: %s is a wrong use, and it is said how to write it", async (channel, why) => {
    const error = await refused("send", channel, "x", "--as", "alice");
    expect([error.exit, error.code]).toEqual([2, "bad-request"]);
    expect(error.message).toContain(why);
    expect(error.next).toMatch(/such as|like/);
  });

  test("a name that is not written as it was typed is said so, in both forms", async () => {
    const sent = await plane.run("send", "#café", "x", "--as", "alice", "--json");
    expect(sent.items()).toEqual([expect.objectContaining({ kind: "sent", channel: "caf_" })]);
    expect(sent.err.split("\n")).toContainEqual(matching(/"about":"renamed".*caf_/));
    expect((await plane.run("send", "#plain", "x", "--as", "alice", "--json")).err).not.toContain("renamed");
  });

  test("a tail without a choice joins what the credential reads, where that is not #general", async () => {
    const { file } = await minted("reader", "--subscribe", "news,team.>", "--publish", "news");
    const tail = await plane.run("tail", "--creds", file, "--timeout", "1", "--json");
    expect(tail.code).toBe(0);
    const joined = tail.err.split("\n").filter((line) => line.includes('"kind":"joined"'));
    expect(joined.map((line) => (JSON.parse(line) as { channel: string }).channel)).toEqual(["news", "team.>"]);
    expect(await refused("tail", "--creds", file, "--channel", "general")).toMatchObject({
      exit: 1,
      code: "permission-denied",
      next: matching(/news, team\.>/),
    });
    expect(await refused("send", "#general", "x", "--creds", file)).toMatchObject({
      code: "permission-denied",
      message: "this credential may not post to #general",
    });
  });

  test("A.08: --channel without a channel is a wrong use, and does not wait for ever", async () => {
    expect((await refused("tail", "--as", "alice", "--channel", "")).exit).toBe(2);
  });

  test("A.08: tail that ends before its count says so with the error's shape", async () => {
    const error = await refused("tail", "--as", "alice", "--dm", "--count", "3", "--timeout", "0.5");
    expect([error.exit, error.code]).toEqual([4, "deadline-exceeded"]);
    expect(error.message).toContain("0 of 3");
  });
});

describe("capabilities of a credential", () => {
  const mint = (actor: string, ...args: string[]) =>
    refused("mint", "--owner", "acme", "--actor", actor, "--out", at(`${actor}.creds`), ...args);

  test("A.08: a word that opens nothing is a wrong use, with the words that do and how an endpoint is named", async () => {
    const error = await mint("wordy", "--capability", "audit");
    expect([error.exit, error.code]).toEqual([2, "bad-request"]);
    expect(error.message).toContain('"audit"');
    expect(error.next).toMatch(/admin.*serve.*com\.example\.echo:audit/);
  });

  test.each(["com.example.*", "com.example.echo@one", "*"])(
    "A.08: %s is none, and it is said what one is",
    async (text) => {
      const error = await mint("odd", "--capability", text);
      expect([error.exit, error.code]).toEqual([2, "bad-request"]);
      expect(error.next).toMatch(/com\.example\.echo, .*@all/);
    },
  );

  test("A.08: an endpoint that nobody has registered refuses the mint, and leaves no file", async () => {
    const error = await mint("early", "--capability", "com.example.none@all");
    expect([error.exit, error.code]).toEqual([1, "failed-precondition"]);
    expect(error.message).toContain("com.example.none");
    expect(error.next).toContain("cotal endpoints");
    expect(existsSync(at("early.creds"))).toBe(false);
  });

  test("given several times or with commas, they are told sorted, each once; help says what they are", async () => {
    const lists = ["--capability", "serve,purge", "--capability", "serve"];
    const [item] = await plane.json("mint", "--owner", "acme", "--actor", "able", "--out", at("able.creds"), ...lists);
    expect(item).toMatchObject({ kind: "minted", capabilities: ["purge", "serve"] });
    expect(readCredsFile(at("able.creds")).view.capabilities).toEqual(["purge", "serve"]);
    const help = (await plane.run("mint", "--help")).out.replaceAll(/\s+/g, " ");
    expect(help).toMatch(/--capability <names> .*com\.example\.echo:audit.*@all.*serve/);
  });

  test("a kept credential is renewed with them", async () => {
    await plane.json("mint", "--owner", "acme", "--actor", "kept", "--capability", "serve");
    const file = trustPaths(plane.state).agentCreds("main", "kept");
    const before = readCredsFile(file).view;
    await renewIfSoon(resolveTarget({ state: plane.state }), file, (before.expires ?? 0) - 3600);
    const { expires: _, ...after } = readCredsFile(file).view;
    expect({ ...after, expires: before.expires }).toEqual(before);
    expect(after.capabilities).toEqual(["serve"]);
  });
});

describe("who is meant", () => {
  test("a label in place of an owner token is refused, and nothing is stored for nobody", async () => {
    await minted("scout");
    const error = await refused("dm", "acme.scout", "x", "--as", "alice");
    expect([error.exit, error.code]).toEqual([1, "not-found"]);
    expect(error.next).toContain("owner token");
  });

  test("one whose credential is kept here is known by name, also when away", async () => {
    await plane.json("send", "#general", "hello", "--as", "bea");
    const [sent] = await plane.json("dm", "bea", "for later", "--as", "alice");
    expect(sent).toMatchObject({ kind: "sent", to: matching(/^u_[a-z2-7]{26}\.bea$/) });
    const got = await plane.json("tail", "--as", "bea", "--dm", "--count", "1", "--timeout", "10");
    expect(textsOf(got)).toEqual(["for later"]);
    const [gone] = await plane.json("deprovision", "bea");
    expect(gone).toMatchObject({ kind: "deprovisioned", principal: sent?.["to"] });
  });

  test("deprovision takes owner.actor as it was minted, from one who is away", async () => {
    const { file, principal } = await minted("kite");
    const [gone] = await plane.json("deprovision", "acme.kite");
    expect(gone).toMatchObject({ kind: "deprovisioned", principal });
    expect(await refused("send", "#general", "x", "--creds", file)).toMatchObject({
      exit: 1,
      code: "unauthenticated",
      message: matching(/kite\.creds/),
      next: matching(/cotal mint/),
    });
    expect(await refused("deprovision", "acme.kite")).toMatchObject({ code: "not-found" });
  });

  test("the operator who ends itself has a new credential at once", async () => {
    const operator = dotForm(readCredsFile(trustPaths(plane.state).operatorCreds("main")).view.principal);
    expect((await plane.json("deprovision", operator))[0]).toMatchObject({ principal: operator });
    expect((await plane.run("who")).code).toBe(0);
    expect((await plane.run("doctor")).code).toBe(0);
  });

  test("who acts is honoured where the operator would be taken", async () => {
    await plane.json("send", "#general", "hello", "--as", "alice");
    for (const args of [
      ["mint", "--owner", "acme", "--actor", "x", "--out", at("x.creds")],
      ["limits", "show"],
      ["channel", "set", "general", "--replay", "off"],
    ]) {
      expect(await refused(...args, "--as", "alice")).toMatchObject({ exit: 1, code: "permission-denied" });
    }
  });
});

describe("credentials", () => {
  test("one that expired says when, one of another broker says that, and one that is damaged is named", async () => {
    const { file } = await minted("old");
    const expired = at("expired.creds");
    writeFileSync(expired, await expiredCopy(file));
    const said = await refused("send", "#general", "x", "--creds", expired);
    expect([said.exit, said.code]).toEqual([1, "unauthenticated"]);
    expect(said.message).toMatch(/expired\.creds expired at \d{4}-/);

    const other = await startPlane("--auth", "static");
    onTestFinished(() => other.stop());
    const foreign = join(other.state, "foreign.creds");
    await other.json("mint", "--owner", "acme", "--actor", "f", "--out", foreign);
    expect(await refused("who", "--creds", foreign)).toMatchObject({
      code: "unauthenticated",
      message: matching(/foreign\.creds.*another broker/),
    });

    const damaged = at("damaged.creds");
    writeFileSync(damaged, "nonsense");
    expect(await refused("who", "--creds", damaged)).toMatchObject({ exit: 1, message: matching(/damaged\.creds/) });
  });

  test("a damaged credential of the operator is found, and a start makes a new one", async () => {
    const own = await startPlane("--auth", "static");
    onTestFinished(() => own.stop());
    writeFileSync(trustPaths(own.state).operatorCreds("main"), "nonsense");
    const doctor = await own.run("doctor", "--json");
    expect(doctor.code).toBe(5);
    expect(doctor.items()[0]).toMatchObject({ check: "operator credential", message: matching(/operator\.creds/) });
    expect((await own.run("space", "add", "main")).code).toBe(0);
    const again = await own.run("doctor", "--json");
    expect({ code: again.code, found: again.items() }).toMatchObject({ code: 0 });
  });
});

/** The same identity with a credential that ended a minute ago. */
async function expiredCopy(file: string): Promise<string> {
  const text = readFileSync(file, "utf8");
  const { view } = parseCreds(text);
  const key = keyFromSeed(/\bSU[A-Z2-7]{56}\b/.exec(text)?.[0] ?? "");
  const keys = trustPaths(plane.state).provisioner("main");
  const { front } = JSON.parse(readFileSync(join(keys, "space.json"), "utf8")) as { front: string };
  const { jwt } = await mintUser({
    profile: "probe",
    scope: { space: "main", holder: { principal: view.principal, uid: view.uid }, inboxNonce: drawNonce(randomBytes) },
    account: Account.Front,
    accountKey: front,
    signer: keyFromSeed(readFileSync(join(keys, "front-signer.nk"), "utf8").trim()),
    userKey: key.publicKey,
    expires: Math.floor(Date.now() / 1000) - 60,
    limits: { subs: 10, payload: 1000 },
    name: "old",
  });
  return formatCreds(jwt, key);
}

describe("what there is only elsewhere", () => {
  test.each([["actor", "list"], ["actor", "grant", "x"], ["actor", "revoke", "x"], ["login"], ["logout"]])(
    "A.08: %s %s in a space of credential files is told as that, with what there is instead",
    async (...args) => {
      const error = await refused(...args);
      expect(error).toMatchObject({ exit: 1, code: "failed-precondition" });
      expect([error.message, error.next]).toEqual([
        matching(/credential files/),
        matching(/cotal mint .*cotal deprovision/),
      ]);
    },
  );

  test.each([["whoami"], ["send", "general", "x"], ["limits", "show"]])(
    "A.08: %s of a space that there is not names those that there are",
    async (...args) => {
      const error = await refused(...args, "--space", "nosuch");
      expect(error).toMatchObject({ exit: 1, code: "not-found" });
      expect([error.message, error.next]).toEqual([
        matching(/there is no space nosuch/),
        matching(/has main; cotal space add nosuch/),
      ]);
    },
  );

  test("whoami refuses a credential of another space, as every other command does", async () => {
    await plane.json("space", "add", "other", "--auth", "static");
    const { file } = await minted("elsewhere");
    const error = await refused("whoami", "--creds", file, "--space", "other");
    expect([error.exit, error.code, error.next]).toEqual([1, "failed-precondition", matching(/--space main/)]);
  });

  test("A.08: a command that nearly exists is named", async () => {
    const error = await refused("snd");
    expect([error.exit, error.message]).toEqual([2, "unknown command 'snd' (Did you mean send?)"]);
  });
});

describe("where the space is", () => {
  test("A.08: nothing runs: every command that needs it ends with 3 and names the state folder", async () => {
    const state = folder();
    for (const args of [["who"], ["send", "#general", "x", "--as", "a"], ["mint", "--owner", "a", "--actor", "b"]]) {
      const ran = await cli([...args, "--json", "--state", state]);
      expect(ran.code).toBe(3);
      expect(ran.items()[0]).toMatchObject({ kind: "error", code: "unavailable", next: matching(/cotal up/) });
      expect(String(ran.items()[0]?.["message"])).toContain(state);
    }
    const doctor = await cli(["doctor", "--json", "--state", state]);
    expect(doctor.items().map(({ kind }) => kind)).toEqual(["finding", "doctor"]);
  });

  test("A.08: an address where nothing answers is named, and so is one where something else does", async () => {
    expect(await refused("who", "--server", "127.0.0.1:1")).toMatchObject({
      exit: 3,
      message: matching(/127\.0\.0\.1:1/),
    });
    const server = createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    expect(await refused("who", "--server", `127.0.0.1:${port}`)).toMatchObject({
      exit: 3,
      code: "unavailable",
      message: matching(/not a nats-server/),
    });
  });

  test("A.08: a damaged plane.json is a finding of the doctor, and names the file", async () => {
    const state = folder();
    writeFileSync(join(state, "plane.json"), "{bad");
    const ran = await cli(["doctor", "--json", "--state", state]);
    expect(ran.code).toBe(5);
    expect(ran.items()[0]).toMatchObject({ kind: "finding", message: matching(/plane\.json/) });
  });

  test("a damaged record of what runs: down and status do not say that nothing runs", async () => {
    const path = join(plane.state, "run", "plane.json");
    const whole = readFileSync(path, "utf8");
    writeFileSync(path, "{bad");
    try {
      for (const command of ["down", "status"]) {
        expect(await refused(command)).toMatchObject({ exit: 1, message: matching(/plane\.json/) });
      }
    } finally {
      writeFileSync(path, whole);
    }
    expect((await plane.run("status")).code).toBe(0);
  });

  test("A.08: a state folder below a file is told as that", async () => {
    const ran = await cli(["who", "--json", "--state", "/etc/passwd/state"]);
    expect([ran.code, ran.items()[0]?.["code"]]).toEqual([1, "failed-precondition"]);
  });

  test("what to type next names the state folder also where this terminal has it in COTAL_STATE", async () => {
    const ran = await cli(["up", "--detach", "--state", plane.state], { env: { COTAL_STATE: folder() } });
    expect(ran.code).toBe(0);
    expect(ran.out.split("\n").filter((line) => line.includes("npx cotal"))).toEqual([
      matching(new RegExp(`tail .*--state ${plane.state}`)),
      matching(new RegExp(`send .*--state ${plane.state}`)),
      matching(new RegExp(`down --state ${plane.state}`)),
    ]);
  });
});

test("PH.02: a store that is gone is found by name, with what to do, and comes back empty with a start", async () => {
  const lost = await startPlane("--auth", "static");
  onTestFinished(() => lost.stop());
  process.kill(lost.pid("broker"), "SIGSTOP");
  rmSync(join(lost.state, "broker", "store"), { recursive: true, force: true });
  mkdirSync(join(lost.state, "broker", "store"));
  process.kill(lost.pid("broker"), "SIGKILL");
  const doctor = await eventually(
    () => lost.run("doctor", "--json"),
    (ran) => ran.out.includes("is gone"),
  );
  expect(doctor.code).toBe(5);
  expect(doctor.items()).toContainEqual(
    expect.objectContaining({ kind: "finding", check: "store shape", message: matching(/^CHAT_main is gone/) }),
  );
  await lost.run("down");
  expect((await cli(["up", "--detach", "--state", lost.state])).code).toBe(0);
  expect((await lost.run("doctor")).code).toBe(0);
});
