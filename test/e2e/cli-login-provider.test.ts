/**
 * People sign in at their own identity provider with real CLI processes, against a real provider, a real
 * broker and the real auth service: by browser, by device, and for longer than any token lives.
 */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { type LoginPlace, type ProviderLogin, loginPath, readLogin, writeLogin } from "../../cli/login-file.ts";
import { planePaths } from "../../launcher/state-folder.ts";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { newBearerJwk } from "../../shared/trust/bearer.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type Person, walk } from "../support/browsing.ts";
import {
  type CliOptions,
  type Item,
  type Ran,
  type Running,
  endAll,
  matching,
  startCli,
  textsOf,
} from "../support/cli.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { NATIVE_CLIENT, sayingToken } from "../support/native-client.ts";
import { freePort } from "../support/nats-server.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { sleep } from "../support/vitals.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let idp: IdentityProvider;
let space: TestSpace;
let auth: AuthService;
let exchange: string;
/** A machine that has nothing of the space but its address. */
let place: LoginPlace;

beforeAll(async () => {
  idp = await startIdentityProvider({ native: [NATIVE_CLIENT, "elsewhere"] });
  space = await startSpace({ auth: "user" });
  const port = await freePort();
  exchange = `http://127.0.0.1:${port}`;
  auth = await startAuthService(space, {
    env: {
      COTAL_IDP_ISSUER: idp.issuer,
      COTAL_IDP_AUDIENCE: NATIVE_CLIENT,
      COTAL_AUTH_PUBLIC: `main=127.0.0.1:${port}`,
      COTAL_AUTH_PUBLIC_PLAIN: "true",
      COTAL_LOG_LEVEL: "debug",
    },
  });
  place = { state: mkdtempSync(join(tmpdir(), "cotal-away-")), space: "main" };
});
afterEach(() => {
  idp.intercept = undefined;
  idp.life = 300;
});
afterAll(async () => {
  endAll();
  await auth.stop();
  await space.stop();
  await idp.stop();
  rmSync(place.state, { recursive: true, force: true });
});

const printed: string[] = [];
const secrets = new Set<string>();
const started: Running[] = [];

function start(args: readonly string[], options: CliOptions = {}): Running {
  const running = startCli([...args, "--state", place.state, "--server", space.url], {
    ...options,
    env: { DISPLAY: "", WAYLAND_DISPLAY: "", ...options.env },
  });
  started.push(running);
  return running;
}
/** Runs a command to its end, and keeps what it printed for the last test. */
async function over(running: Running): Promise<Ran> {
  const ran = await running.ended;
  printed.push(ran.out, ran.err);
  remember();
  return ran;
}
const run = (...args: string[]): Promise<Ran> => over(start([...args, "--json"]));
async function done(...args: string[]): Promise<Item[]> {
  const ran = await run(...args);
  expect({ args, code: ran.code, out: ran.out }).toMatchObject({ code: 0 });
  return ran.items();
}
/** Tokens that are kept now must be printed nowhere. */
function remember(): void {
  const login = existsSync(loginPath(place)) ? readLogin(place) : undefined;
  if (login?.kind !== "provider") return;
  for (const secret of [login.idToken, login.refreshToken]) if (secret !== undefined) secrets.add(secret);
}
function kept(): ProviderLogin {
  const login = readLogin(place);
  if (login?.kind === "provider") return login;
  throw new Error(`no sign-in at a provider is kept but ${login?.kind}`);
}
const refreshes = (): number => idp.granted.filter((type) => type === "refresh_token").length;

/** What a running login says on standard error, once it says it. */
async function said(login: Running, about: string): Promise<Item> {
  await login.saying(`"about":"${about}"`);
  const line = login
    .err()
    .split("\n")
    .find((text) => text.includes(`"about":"${about}"`));
  return JSON.parse(line ?? "{}") as Item;
}
const addressOf = async (login: Running): Promise<string> => String((await said(login, "sign-in"))["address"]);

/** Walks the provider's pages; the answer is where they lead to. */
async function answerOf(address: string, person: Person): Promise<URL> {
  const answer = new URL((await walk(address, person)).url);
  secrets.add(answer.searchParams.get("code") ?? "no code");
  return answer;
}
async function signIn(person: Person, ...args: string[]): Promise<Ran> {
  const login = start(["login", "--json", ...args]);
  await fetch(await answerOf(await addressOf(login), person));
  return over(login);
}
const alice = { login: "alice" } as const;
/** The ID token that is kept is over. */
const age = (): void => writeLogin(place, { ...kept(), idToken: sayingToken("alice", 300, -1) });

describe("by browser", () => {
  test("A.12 W2.02: the exchange's address is all that one needs; who signs in is the same person each time", async () => {
    const first = await signIn(alice, "--exchange", exchange);
    expect(first.code).toBe(0);
    expect(first.items()).toMatchObject([
      { kind: "login", by: "provider", issuer: idp.issuer, stays: true, owner: matching(/^u_[a-z2-7]{26}$/) },
    ]);
    expect(statSync(loginPath(place)).mode & 0o777).toBe(0o600);
    const owner = first.items()[0]?.["owner"];
    const [me] = await done("whoami");
    expect(me).toMatchObject({ principal: `${String(owner)}.cli`, by: idp.issuer });
    // The second time it is known where.
    expect((await signIn(alice)).items()[0]).toMatchObject({ owner });
    expect((await signIn({ login: "bob" })).items()[0]?.["owner"]).not.toBe(owner);
    expect((await signIn(alice)).items()[0]).toMatchObject({ owner });
    await done("send", "general", "hello", "--as", "ann");
    expect(textsOf(await done("history", "general", "--as", "ann"))).toEqual(["hello"]);
  });

  test("without a browser it is said what to do; the address is shown in any case", async () => {
    const login = start(["login"]);
    await login.saying("cotal login --device");
    const [address = ""] = /http:\S+/.exec(login.err()) ?? [];
    await fetch(await answerOf(address, alice));
    const ran = await over(login);
    expect(ran).toMatchObject({ code: 0, out: matching(/^signed in to main by http:/) });
    expect(ran.out).toContain("you sign out (cotal logout)");
  });

  test("a browser is opened by its program, with the address as its one argument", async () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-opener-"));
    const seen = join(folder, "seen");
    const opener = join(folder, "xdg-open");
    writeFileSync(opener, `#!/bin/sh\nprintf '%s\\n' "$#" "$1" > ${seen}.part\nmv ${seen}.part ${seen}\n`);
    chmodSync(opener, 0o755);
    const PATH = `${folder}:${process.env["PATH"] ?? ""}`;
    const login = start(["login", "--json"], { env: { DISPLAY: ":99", PATH } });
    const address = await addressOf(login);
    await vi.waitFor(() => expect(existsSync(seen)).toBe(true), 10_000);
    expect(readFileSync(seen, "utf8")).toBe(`1\n${address}\n`);
    await fetch(await answerOf(address, alice));
    expect((await over(login)).code).toBe(0);
    rmSync(folder, { recursive: true });
  });

  test("an answer of another state is refused, and the sign-in goes on; one of another nonce ends it", async () => {
    const login = start(["login", "--json"]);
    const answer = await answerOf(await addressOf(login), alice);
    const forged = new URL(answer);
    forged.searchParams.set("state", "of-somebody-else");
    expect((await fetch(forged)).status).toBe(400);
    expect((await fetch(answer)).status).toBe(200);
    expect((await over(login)).code).toBe(0);

    const before = kept();
    const other = start(["login", "--json"]);
    const address = new URL(await addressOf(other));
    address.searchParams.set("nonce", "of-somebody-else");
    await fetch(await answerOf(address.href, alice));
    const ran = await over(other);
    expect(ran).toMatchObject({ code: 1 });
    expect(ran.items().at(-1)).toMatchObject({ kind: "error", code: "unauthenticated" });
    expect(kept()).toEqual(before);
  });

  test("a sign-in that fails says why, and leaves the one before as it was", async () => {
    const before = kept();
    const refused = await signIn({ ...alice, refuses: true });
    expect([refused.code, refused.items().at(-1)?.["code"]]).toEqual([1, "permission-denied"]);
    const late = await run("login", "--timeout", "1");
    expect([late.code, late.items().at(-1)?.["code"]]).toEqual([4, "deadline-exceeded"]);
    // The provider is content, the space is not: a client of another audience.
    const strange = await signIn(alice, "--client-id", "elsewhere");
    expect([strange.code, strange.items().at(-1)?.["code"]]).toEqual([1, "unauthenticated"]);
    const away = await run("login", "--issuer", "http://127.0.0.1:9", "--client-id", NATIVE_CLIENT);
    expect([away.code, away.items().at(-1)?.["code"]]).toEqual([3, "unavailable"]);
    for (const wrong of [
      ["--issuer", "http://login.example.com", "--client-id", "x"],
      ["--device", "--token-file", "-"],
      ["--timeout", "never"],
    ]) {
      expect((await run("login", ...wrong)).items().at(-1)).toMatchObject({ code: "bad-request" });
    }
    expect(kept()).toEqual(before);
  });
});

test("on the space's own machine nothing has to be named, not even where the exchange is", async () => {
  const away = place;
  place = { state: space.state, space: "main" };
  symlinkSync(join("auth", "exchange-main.json"), planePaths(space.state).face("main"));
  const ran = await signIn(alice);
  expect(ran.items()).toMatchObject([{ kind: "login", by: "provider", issuer: idp.issuer }]);
  expect(kept()).not.toHaveProperty("exchange");
  age();
  await done("whoami");
  await done("logout");
  place = away;
});

describe("by device", () => {
  test("the page and the code are shown, the code is typed in elsewhere, and one stays signed in", async () => {
    const login = start(["login", "--device", "--json"]);
    const { address, code } = await said(login, "device");
    await walk(`${String(address)}?user_code=${encodeURIComponent(String(code))}`, alice);
    const ran = await over(login);
    expect(ran.code).toBe(0);
    expect(ran.items()[0]).toMatchObject({ by: "provider", stays: true });
    await done("whoami");
  });
});

describe("staying signed in", () => {
  test("processes that find the ID token over ask for another one once, and go on with what it gave", async () => {
    await signIn(alice);
    for (let round = 0; round < 2; round += 1) {
      age();
      const [before, { refreshToken }] = [refreshes(), kept()];
      const ran = await Promise.all(Array.from({ length: 4 }, () => run("whoami")));
      expect(ran.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
      expect(refreshes()).toBe(before + 1);
      expect(kept().refreshToken).not.toBe(refreshToken);
    }
    expect(idp.refused.filter((type) => type === "refresh_token")).toEqual([]);
    expect(readdirSync(join(loginPath(place), "..")).filter((name) => name.startsWith("login.lock"))).toEqual([]);
  });

  test("a tail that runs outlives its ID token: when its bearer is refused, it gets another one by itself", async () => {
    idp.life = 3;
    await signIn(alice);
    const tail = start(["tail", "--as", "bob", "--channel", "general", "--json", "--timeout", "100"]);
    await tail.saying('"kind":"joined"');
    const before = refreshes();
    // The space's key for bearers is replaced: those that are out are worth nothing, however young.
    await auth.kill();
    await space.broker.kill();
    writeFileSync(join(trustPaths(space.state).auth("main"), AuthFile.Bearer), newBearerJwk(), { mode: 0o600 });
    await sleep(4000);
    await space.broker.restart();
    await auth.restart();
    await vi.waitFor(() => expect(refreshes()).toBeGreaterThan(before), 60_000);
    await vi.waitFor(
      async () => expect((await run("send", "general", "still here", "--as", "ann")).code).toBe(0),
      60_000,
    );
    await tail.saying("still here", 60_000);
    tail.process.kill("SIGINT");
    expect((await over(tail)).code).toBe(0);
    expect(idp.refused.filter((type) => type === "refresh_token")).toEqual([]);
    expect(auth.log()).toContain('"result":"ok"');
    expect(auth.log()).not.toContain('"result":"expired"');
  });

  test("a provider that is away is said to be, and no sign-in is lost by it", async () => {
    await signIn(alice);
    age();
    idp.intercept = (_, response) => {
      response.writeHead(503).end();
      return true;
    };
    const away = await run("whoami");
    expect(away.code).toBe(3);
    expect(away.items().at(-1)).toMatchObject({ code: "unavailable", message: matching(/identity provider/) });
    idp.intercept = undefined;
    await done("whoami");
  });

  test("a refresh token that was revoked ends in one line, and nobody asks with it again", async () => {
    await signIn(alice);
    await idp.revoke(kept().refreshToken ?? "", NATIVE_CLIENT);
    age();
    const before = idp.refused.length;
    for (let round = 0; round < 2; round += 1) {
      const ran = await run("send", "general", "x", "--as", "ann");
      expect(ran.code).toBe(1);
      expect(ran.items()).toMatchObject([{ code: "unauthenticated", next: "sign in again: cotal login" }]);
    }
    expect(idp.refused.length).toBe(before + 1);
    expect((await signIn(alice)).code).toBe(0);
    await done("whoami");
  });
});

describe("signing out", () => {
  test("ends it here and at the provider; only a new sign-in helps", async () => {
    await signIn(alice);
    const login = kept();
    expect(await done("logout")).toMatchObject([{ kind: "logout", provider: "revoked" }]);
    expect(readFileSync(loginPath(place), "utf8")).not.toMatch(/oken/);
    const answer = await fetch(`${idp.issuer}/token`, {
      method: "POST",
      body: new URLSearchParams({
        grant_type: "refresh_token",
        refresh_token: login.refreshToken ?? "",
        client_id: NATIVE_CLIENT,
      }),
    });
    expect(await answer.json()).toMatchObject({ error: "invalid_grant" });
    const ran = await run("send", "general", "x");
    expect(ran.items()).toMatchObject([{ code: "unauthenticated", next: "sign in: cotal login" }]);
    expect((await signIn(alice)).code).toBe(0);
  });

  test("is not held up by a provider that can't be told, and says that it was not", async () => {
    idp.intercept = (_, response) => {
      response.writeHead(503).end();
      return true;
    };
    const ran = await run("logout");
    expect(ran).toMatchObject({ code: 0, err: matching(/goes on at/) });
    expect(ran.items()).toMatchObject([{ kind: "logout", provider: "not-told" }]);
    expect(readFileSync(loginPath(place), "utf8")).not.toMatch(/oken/);
  });
});

test("no token, code, secret or bearer is in anything that was printed or logged", () => {
  for (const running of started) printed.push(running.out(), running.err());
  const whole = [...printed, auth.log()].join("\n");
  expect(whole.length).toBeGreaterThan(5000);
  expect(secrets.size).toBeGreaterThan(20);
  for (const secret of secrets) expect(whole).not.toContain(secret);
  expect(whole).not.toMatch(/eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}/);
  expect(whole).not.toMatch(/code_verifier|refresh_token=|device_code/);
});
