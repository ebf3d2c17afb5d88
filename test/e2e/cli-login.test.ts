/** A space that people sign in to, with real processes: `cotal up`, which makes one, and what follows. */
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { addressee } from "../../cli/addressee.ts";
import { createOutput } from "../../cli/output.ts";
import { resolveTarget } from "../../cli/target.ts";
import {
  type Item,
  type Ran,
  type TestPlane,
  cli,
  eventually,
  leftOf,
  matching,
  planeOn,
  startPlane,
  textsOf,
} from "../support/cli.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane();
});
afterAll(() => plane.stop());

const printed: string[] = [];
/** Runs a command and keeps what it printed, for the last test. */
async function run(...args: string[]): Promise<Ran> {
  const ran = await plane.run(...args, "--json");
  printed.push(ran.out, ran.err);
  return ran;
}
async function done(...args: string[]): Promise<Item[]> {
  const ran = await run(...args);
  expect({ args, code: ran.code, out: ran.out }).toMatchObject({ code: 0 });
  return ran.items();
}
async function refused(...args: string[]): Promise<Item | undefined> {
  const ran = await run(...args);
  expect({ args, code: ran.code }).toEqual({ args, code: 1 });
  return ran.items().at(-1);
}
const face = (): { readonly url: string; readonly capability: string } =>
  JSON.parse(readFileSync(join(plane.state, "run", "exchange-main.json"), "utf8")) as {
    url: string;
    capability: string;
  };

describe("signing in", () => {
  test("A.12: up brings the auth service, status and doctor know it, and the development issuer is said out loud", async () => {
    const [status] = await done("status");
    expect(status).toMatchObject({ running: true, auth: "user" });
    expect(((status?.["parts"] ?? []) as Item[]).map(({ name, health }) => [name, health])).toEqual([
      ["broker", "ok"],
      ["provisioner", "ok"],
      ["auth", "ok"],
      ["delivery", "ok"],
    ]);
    expect((await plane.run("status")).out).toContain("development issuer");
    expect((await done("doctor")).at(-1)).toMatchObject({
      findings: 0,
      checked: expect.arrayContaining(["sign-in"]) as unknown,
    });
  });

  test("W2.02: the machine's person is signed in: the same owner for every name, each time, under one token each", async () => {
    const [me] = await done("whoami");
    const [again] = await done("whoami");
    expect(me).toMatchObject({ principal: matching(/^u_[a-z2-7]{26}\.cli$/), by: "development issuer" });
    expect([again?.["principal"], again?.["uid"]]).toEqual([me?.["principal"], me?.["uid"]]);
    const [ann] = await done("whoami", "--as", "ann");
    expect(String(ann?.["principal"]).split(".")).toEqual([String(me?.["principal"]).split(".")[0], "ann"]);
    expect(ann?.["uid"]).not.toBe(me?.["uid"]);
    const [login] = await done("login");
    expect(login).toMatchObject({ kind: "login", owner: String(me?.["principal"]).split(".")[0], by: "dev" });
  });

  test("signed out, every command that acts as somebody refuses, until the next sign-in", async () => {
    await done("logout");
    for (const args of [["whoami"], ["send", "general", "x"], ["send", "general", "x", "--as", "ann"]]) {
      expect(await refused(...args)).toMatchObject({ code: "unauthenticated", next: "sign in: cotal login" });
    }
    await done("login");
    await done("send", "general", "x", "--as", "ann");
  });

  test("a token that the space does not trust is refused with the reason, and is not kept", async () => {
    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
    const exp = Math.floor(Date.now() / 1000) + 600;
    const token = `${part({ alg: "RS256" })}.${part({ iss: "https://elsewhere.example", sub: "x", exp })}.c2ln`;
    const file = join(plane.state, "run", "token");
    writeFileSync(file, token);
    expect(await refused("login", "--token-file", file)).toMatchObject({ code: "unauthenticated" });
    await done("whoami");
    expect((await run("login", "--token-file", join(plane.state, "nowhere"))).code).toBe(1);
    writeFileSync(file, "no token");
    expect((await run("login", "--token-file", file)).code).toBe(2);
  });

  test("PF.03: nothing is minted where people sign in, and it is said what to do instead", async () => {
    expect(await refused("mint", "--owner", "acme", "--actor", "x")).toMatchObject({
      code: "failed-precondition",
      next: matching(/--as NAME/),
    });
  });
});

describe("mistakes where people sign in", () => {
  test.each([
    ["login", "--exchange", "nonsense"],
    ["login", "--issuer", "nonsense", "--client-id", "x"],
  ])("A.08: %s %s %s is a wrong use", async (...args) => {
    const ran = await run(...args);
    expect([ran.code, ran.items().at(-1)?.["code"]]).toEqual([2, "bad-request"]);
  });

  test("A.08: deprovision is told as that, before anybody is looked for, with what there is instead", async () => {
    expect(await refused("deprovision", "nobody")).toMatchObject({
      code: "failed-precondition",
      next: expect.stringContaining("cotal actor revoke") as unknown,
    });
  });

  test("a grant of nothing says so, and a list that is not written as it was typed too", async () => {
    const ran = await plane.run("actor", "grant", "idle", "--capability", "purge");
    expect([ran.code, ran.err]).toEqual([0, matching(/may neither read nor post/)]);
    const [granted] = await done("actor", "grant", "idle", "--subscribe", "a b");
    expect(granted).toMatchObject({ allowSubscribe: ["a_b"], capabilities: [] });
    expect(printed.at(-1)).toContain("is written #a_b");
  });

  test("A.08: a capability that opens nothing is a wrong use, with those that do; nothing is granted", async () => {
    for (const text of ["audit", "com.example.*", "provisioner"]) {
      const ran = await run("actor", "grant", "able", "--capability", `serve,${text}`);
      const error = ran.items().at(-1);
      expect([text, ran.code, error?.["code"]]).toEqual([text, 2, "bad-request"]);
      expect(String(error?.["next"])).toMatch(/com\.example\.echo.*serve|serve.*com\.example\.echo/);
    }
    const names = (await done("actor", "list")).map(({ principal }) => String(principal).split(".")[1]);
    expect(names).not.toContain("able");
  });

  test("capabilities are granted sorted, each once, and @all can be taken off again", async () => {
    const given = ["--capability", "serve,com.example.echo@all", "--capability", "serve"];
    const [granted] = await done("actor", "grant", "able", "--subscribe", "general", ...given);
    expect(granted).toMatchObject({ capabilities: ["com.example.echo@all", "serve"] });
    await done("whoami", "--as", "able");
    const [narrowed] = await done("actor", "narrow", "able", "--capability", "com.example.echo");
    expect(narrowed).toMatchObject({ capabilities: ["com.example.echo"] });
    expect(await refused("actor", "narrow", "able", "--capability", "com.example.echo@all")).toMatchObject({
      code: "failed-precondition",
      message: matching(/com\.example\.echo@all/),
    });
  });

  test("a tail without a choice of somebody who may not read #general says what to name", async () => {
    await done("actor", "grant", "narrow", "--subscribe", "news");
    expect(await refused("tail", "--as", "narrow", "--timeout", "2")).toMatchObject({
      code: "permission-denied",
      next: expect.stringContaining("--channel") as unknown,
    });
  });
});

describe("agents of a person", () => {
  test("talk in a channel, write to each other and answer a name", async () => {
    const tail = plane.start("tail", "--as", "bob", "--channel", "general", "--dm", "--json", "--timeout", "60");
    await tail.saying('"kind":"joined"');
    await done("send", "#general", "hello bob", "--as", "ann");
    const [who] = await eventually(
      () => done("who"),
      (members) => members.length === 1,
    );
    expect(who).toMatchObject({ name: "bob" });
    await done("dm", "bob", "just for you", "--as", "ann");
    await tail.saying("just for you");
    tail.process.kill("SIGINT");
    const ran = await tail.ended;
    printed.push(ran.out, ran.err);
    const live = ran.items().filter(({ kind, historical }) => kind !== "joined" && historical === false);
    expect(textsOf(live).toSorted()).toEqual(["hello bob", "just for you"]);
  });

  test("a direct message to somebody away is there when they come", async () => {
    const [carl] = await done("whoami", "--as", "carl");
    await done("dm", String(carl?.["principal"]), "while you were out", "--as", "ann");
    const items = await done("tail", "--as", "carl", "--dm", "--count", "1", "--timeout", "20");
    expect(textsOf(items.filter(({ kind }) => kind === "dm"))).toEqual(["while you were out"]);
  });

  test("an agent of one's own that is away is written to by its name; of a stranger only the whole address is taken", async () => {
    const [hugo] = await done("actor", "grant", "hugo", "--subscribe", "general", "--name", "Hugo");
    const own = String(hugo?.["principal"]);
    // Its inbox begins with its first sign-in.
    expect(await refused("dm", "hugo", "too early", "--as", "ann")).toMatchObject({
      code: "failed-precondition",
      next: expect.stringContaining("cotal tail --as hugo") as unknown,
    });
    await done("whoami", "--as", "hugo");
    for (const name of ["hugo", "Hugo"]) {
      expect((await done("dm", name, `to ${name}`, "--as", "ann")).at(-1)).toMatchObject({ kind: "sent", to: own });
    }
    const items = await done("tail", "--as", "hugo", "--dm", "--count", "2", "--timeout", "20");
    expect(textsOf(items.filter(({ kind }) => kind === "dm"))).toEqual(["to hugo", "to Hugo"]);

    const stranger = `u_${"a".repeat(26)}`;
    for (const name of ["hugo", "ines"]) await done("actor", "grant", `${stranger}.${name}`, "--subscribe", "general");
    expect((await done("dm", "hugo", "again", "--as", "ann")).at(-1)).toMatchObject({ kind: "sent", to: own });
    expect(await refused("dm", "ines", "x", "--as", "ann")).toMatchObject({
      code: "not-found",
      next: matching(new RegExp(`${stranger}\\.ines$`)),
    });
    expect(await refused("dm", "nobody", "x", "--as", "ann")).toMatchObject({
      code: "not-found",
      next: expect.stringContaining(`${own.split(".")[0]}.NAME`) as unknown,
    });
    const revoked = await plane.run("actor", "revoke", "hugo");
    // It waits for a proof, and is not silent meanwhile.
    expect([revoked.code, revoked.err]).toEqual([0, matching(/takes some seconds/)]);
    expect(await refused("dm", "hugo", "x", "--as", "ann")).toMatchObject({ code: "not-found" });
  });

  test("a stranger who is here under the name of an agent of one's own is not written to in its place", async () => {
    await done("actor", "grant", "jon", "--subscribe", "general");
    await done("whoami", "--as", "jon");
    const [me] = await done("whoami");
    const [owner = "", actor = ""] = String(me?.["principal"]).split(".");
    const stranger = { owner: `u_${"b".repeat(26)}`, actor: "x" };
    const said: string[] = [];
    const out = { ...createOutput(true), note: (...lines: readonly string[]) => void said.push(...lines) };
    const session = { me: { owner, actor }, resolve: () => Promise.resolve(stranger) };
    const at = resolveTarget({ state: plane.state });
    expect(await addressee(at, session, "jon", out)).toEqual({ owner, actor: "jon" });
    expect(said).toEqual([]);
    expect(await addressee(at, session, "karl", out)).toEqual(stranger);
    expect(said).toEqual([`karl is ${stranger.owner}.x, somebody else's`]);
  });

  test("W10.08: a revoked name is refused at its next connect, with the reason; the others go on", async () => {
    await done("send", "general", "before", "--as", "dora");
    expect((await done("actor", "revoke", "dora"))[0]).toMatchObject({
      kind: "revoked",
      principal: matching(/\.dora$/),
    });
    expect(await refused("send", "general", "after", "--as", "dora")).toMatchObject({
      code: "permission-denied",
      message: matching(/revoked/),
      next: matching(/actor grant/),
    });
    const doctor = await run("doctor", "--as", "dora");
    expect(doctor.code).toBe(5);
    expect(doctor.items()).toContainEqual(
      expect.objectContaining({ kind: "finding", check: "sign-in", message: matching(/revoked/) }),
    );
    await done("send", "general", "still here", "--as", "ann");
    const listed = await done("actor", "list");
    const states = listed.map(({ principal, state }) => [String(principal).split(".")[1], state]);
    expect(states).toContainEqual(["dora", "revoked"]);
    expect(states).toContainEqual(["ann", "active"]);
  });

  test("W131.07: a tail whose name is rotated is cut off, says so, and goes on under the next epoch", async () => {
    await done("actor", "grant", "gina", "--subscribe", "general");
    const tail = plane.start("tail", "--as", "gina", "--dm", "--count", "1", "--json");
    await eventually(
      () => done("who"),
      (members) => members.some(({ name }) => name === "gina"),
    );
    const [rotated] = await done("actor", "rotate", "gina");
    expect(rotated).toMatchObject({ kind: "rotated", epoch: 2 });
    await done("dm", String(rotated?.["principal"]), "still there", "--as", "ann");
    const ran = await tail.ended;
    printed.push(ran.out, ran.err);
    expect(ran).toMatchObject({ code: 0 });
    expect(textsOf(ran.items().filter(({ kind }) => kind === "dm"))).toEqual(["still there"]);
    // It was cut off: a barrier that had left the connection standing would show the message too.
    expect(ran.err).toContain('"about":"down"');
  });

  test("a name that is narrowed may post where it still may, and nowhere else", async () => {
    await done("send", "ops", "wide", "--as", "eve");
    const [narrowed] = await done("actor", "narrow", "eve", "--publish", "general");
    expect(narrowed).toMatchObject({ kind: "narrowed", allowPublish: ["general"] });
    await done("send", "general", "narrow", "--as", "eve");
    expect(await refused("send", "ops", "wide again", "--as", "eve")).toMatchObject({ code: "permission-denied" });
  });

  test("a name can be granted before anybody uses it, with lists of its own", async () => {
    const [granted] = await done(
      "actor",
      "grant",
      "fred",
      "--subscribe",
      "general",
      "--publish",
      "general",
      "--name",
      "Freddy",
    );
    expect(granted).toMatchObject({ kind: "granted", name: "Freddy", state: "active", allowPublish: ["general"] });
    await done("send", "general", "hi", "--as", "fred");
    expect(await refused("send", "ops", "hi", "--as", "fred")).toMatchObject({ code: "permission-denied" });
  });
});

describe("an auth service that is killed", () => {
  test("comes back by itself on another address; who is connected notices nothing, and the person is the same", async () => {
    const [before] = await done("whoami", "--as", "ann");
    const tail = plane.start("tail", "--as", "bob", "--channel", "general", "--json", "--timeout", "90");
    await tail.saying('"kind":"joined"');
    const [pid, { capability }] = [plane.pid("auth"), face()];
    process.kill(pid, "SIGKILL");
    await eventually(
      () => plane.run("status"),
      ({ code }) => code === 0 && plane.pid("auth") !== pid && plane.pid("auth") !== 0,
    );
    expect(face().capability).not.toBe(capability);
    const [after] = await done("whoami", "--as", "ann");
    expect([after?.["principal"], after?.["uid"]]).toEqual([before?.["principal"], before?.["uid"]]);
    await done("send", "general", "after the crash", "--as", "ann");
    await tail.saying("after the crash");
    tail.process.kill("SIGINT");
    const ran = await tail.ended;
    printed.push(ran.out, ran.err);
    expect(ran.code).toBe(0);
    expect(ran.err).not.toContain('"about":"down"');
  });
});

describe("more spaces, and later", () => {
  test("W10.04: another space has an exchange and owners of its own", async () => {
    const [added] = await done("space", "add", "lab");
    expect(added).toMatchObject({ space: "lab", auth: "user" });
    await done("send", "general", "in the lab", "--as", "ann", "--space", "lab");
    const [here, there] = [await done("whoami", "--as", "ann"), await done("whoami", "--as", "ann", "--space", "lab")];
    expect(here[0]?.["principal"]).not.toBe(there[0]?.["principal"]);
    const kept = await done("history", "general", "--space", "lab", "--as", "ann");
    expect(textsOf(kept)).toEqual(["in the lab"]);
  });

  test("down and up again: the same mode without a word, the same person, the same lifecycles", async () => {
    const before = await done("whoami", "--as", "ann");
    await plane.run("down");
    expect(await run("whoami", "--as", "ann")).toMatchObject({ code: 3 });
    const up = await cli(["up", "--detach", "--json", "--state", plane.state]);
    printed.push(up.out, up.err);
    expect(up.items()[0]).toMatchObject({ kind: "ready", auth: "user" });
    plane = planeOn(plane.state, plane.port);
    const after = await done("whoami", "--as", "ann");
    expect([after[0]?.["principal"], after[0]?.["uid"]]).toEqual([before[0]?.["principal"], before[0]?.["uid"]]);
    await done("send", "general", "again", "--as", "ann");
  });
});

test("no token, bearer, capability or seed is in anything that was printed or logged", () => {
  const logs = join(plane.state, "logs");
  const said = [...printed, ...readdirSync(logs).map((name) => readFileSync(join(logs, name), "utf8"))].join("\n");
  expect(said.length).toBeGreaterThan(5000);
  const issuer = JSON.parse(readFileSync(join(plane.state, "spaces", "main", "auth", "dev-issuer.jwk"), "utf8")) as {
    d: string;
  };
  for (const secret of [face().capability, issuer.d]) expect(said).not.toContain(secret);
  expect(said).not.toMatch(/eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}/);
  expect(said).not.toMatch(/\bS[UAOX][A-Z2-7]{56}\b/);
});

test("down ends all of it, the auth service too, and takes the way to its exchange along", async () => {
  await done("down");
  const left = await eventually(
    () => leftOf(plane.state),
    (found) => found.length === 0,
    5000,
  );
  expect(left).toEqual([]);
  expect(readdirSync(join(plane.state, "run")).filter((name) => name.startsWith("exchange-"))).toEqual([]);
});
