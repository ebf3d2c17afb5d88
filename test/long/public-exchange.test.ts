/**
 * A space whose people come from anywhere: the auth service as a process with a public face per space, a
 * real identity provider, and the CLI on a machine that has nothing but an address and an authority.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { DevToken, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { newAuthority } from "../support/certificates.ts";
import { type Ran, cli, eventually, textsOf } from "../support/cli.ts";
import { ask } from "../support/faces.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort } from "../support/nats-server.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const authority = newAuthority();
const folder = mkdtempSync(join(tmpdir(), "cotal-public-"));
const caFile = join(folder, "ca.pem");
const ports = { main: 0, lab: 0 };
let space: TestSpace;
let idp: IdentityProvider;
let auth: AuthService;

const urlOf = (name: "main" | "lab"): string => `https://localhost:${ports[name]}`;
const keep = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
};

beforeAll(async () => {
  keep("ca.pem", authority.ca);
  for (const name of ["main", "lab"] as const) {
    const { cert, key } = authority.issue();
    keep(`${name}.crt`, cert);
    keep(`${name}.key`, key);
    ports[name] = await freePort();
  }
  idp = await startIdentityProvider();
  space = await startSpace({ auth: "user", spaces: ["main", "lab"] });
  auth = await startAuthService(space, {
    env: {
      COTAL_IDP_ISSUER: idp.issuer,
      COTAL_IDP_AUDIENCE: "cotal",
      COTAL_AUTH_PUBLIC: `main=127.0.0.1:${ports.main},lab=127.0.0.1:${ports.lab}`,
      COTAL_AUTH_PUBLIC_TLS_CERT: join(folder, "{space}.crt"),
      COTAL_AUTH_PUBLIC_TLS_KEY: join(folder, "{space}.key"),
      COTAL_AUTH_CONNECTS_PER_ACTOR: "5",
      COTAL_AUTH_CONNECTS_PER_HOST: "10",
    },
  });
});
afterAll(async () => {
  await auth.stop();
  await space.stop();
  await idp.stop();
  rmSync(folder, { recursive: true, force: true });
});

const exchange = (at: "main" | "lab", idToken: string, of: string = at) =>
  ask(`${urlOf(at)}/exchange`, { ca: authority.ca, body: JSON.stringify({ space: of, idToken, actor: "remote" }) });

describe("two spaces in one process", () => {
  test("W10.04 each at its own listener and from its own keys: nothing of one is worth anything at the other's", async () => {
    const idToken = await idp.signIn("person");
    const [main, lab] = [await exchange("main", idToken), await exchange("lab", idToken)];
    expect([main.status, lab.status]).toEqual([200, 200]);
    expect(main.json["owner"]).not.toBe(lab.json["owner"]);
    for (const [at, of] of [
      ["main", "lab"],
      ["lab", "main"],
    ] as const) {
      const answer = await exchange(at, idToken, of);
      expect([answer.status, answer.json["reason"]]).toEqual([400, "other-space"]);
    }
    const bearer = String(main.json["bearer"]);
    expect((await exchange("lab", bearer)).status).toBe(401);
    const keys = await Promise.all(
      (["main", "lab"] as const).map((at) => ask(`${urlOf(at)}/jwks`, { method: "GET", ca: authority.ca })),
    );
    expect(keys[0]?.json).not.toEqual(keys[1]?.json);
  });

  test("the development issuer is told of for each space, and is nobody to a public face", async () => {
    for (const name of ["main", "lab"] as const) {
      const { idToken } = DevToken.parse((await auth.post(ExchangePath.DevToken, {}, name)).body);
      expect((await exchange(name, idToken)).status).toBe(401);
      const route = await ask(`${urlOf(name)}${ExchangePath.DevToken}`, { ca: authority.ca, body: "{}" });
      expect(route.status).toBe(404);
      const lines = auth
        .log()
        .split("\n")
        .filter((line) => line.includes("THE DEVELOPMENT ISSUER IS ON"));
      expect(lines.filter((line) => line.includes(`"space":"${name}"`))).toHaveLength(1);
    }
  });
});

describe("what one space's connects cost another", () => {
  const denials = (of: string): string[] =>
    auth
      .log()
      .split("\n")
      .filter((line) => line.includes('"msg":"denied"'))
      .map((line) => JSON.parse(line) as { readonly space: string; readonly reason: string })
      .filter((line) => line.space === of)
      .map(({ reason }) => reason);

  async function junkTo(of: "main" | "lab", count: number): Promise<string[]> {
    const before = denials(of).length;
    const answer = await auth.signIn("victim", of);
    for (let n = 0; n < count; n += 1) {
      const outcome = auth.connect({ ...answer, bearer: `junk.of.${n}` }, "j".repeat(26));
      await expect(outcome).rejects.toMatchObject({ code: "unauthenticated" });
    }
    return eventually(
      () => denials(of).slice(before),
      (found) => found.length >= count,
      10_000,
    );
  }

  test("W10.21 an address that floods one space is as free in the other, which the same process serves", async () => {
    const flooded = await junkTo("main", 12);
    expect(flooded.filter((reason) => reason.startsWith("RATE_LIMITED"))).toHaveLength(2);
    const [spared] = await junkTo("lab", 1);
    expect(spared).toContain("malformed");
    const answer = await auth.signIn("victim");
    await auth.connect(answer, "v".repeat(26));
  });
});

describe("the CLI on another machine", () => {
  const state = join(folder, "state");
  const run = (args: readonly string[], env: Record<string, string> = { NODE_EXTRA_CA_CERTS: caFile }): Promise<Ran> =>
    cli([...args, "--state", state, "--server", space.url, "--json"], { env });

  test("signs in at the public face, talks, and reads: with the authority's certificate and nothing else of the space", async () => {
    const tokenFile = keep("token", await idp.signIn("traveller"));
    const login = await run(["login", "--exchange", urlOf("main"), "--token-file", tokenFile]);
    expect([login.code, login.items()[0]]).toMatchObject([0, { kind: "login", space: "main", by: "token" }]);
    for (const args of [["send", "#general", "from afar"], ["whoami"]]) expect((await run(args)).code).toBe(0);
    const history = await run(["history", "#general"]);
    expect([history.code, textsOf(history.items())]).toEqual([0, ["from afar"]]);
  });

  test("without the authority it is told what to do, and nothing is kept", async () => {
    const other = join(folder, "other");
    const tokenFile = keep("token", await idp.signIn("traveller"));
    const args = ["login", "--exchange", urlOf("main"), "--token-file", tokenFile, "--state", other, "--json"];
    const ran = await cli(args, { env: { NODE_EXTRA_CA_CERTS: "" } });
    expect([ran.code, ran.items().at(-1)]).toMatchObject([
      3,
      { code: "unavailable", next: expect.stringContaining("NODE_EXTRA_CA_CERTS") as string },
    ]);
    expect((await cli(["whoami", "--state", other, "--json"])).code).not.toBe(0);
  });
});

describe("settings", () => {
  test("W10.21 the size of a limit: the sixth connect of one actor within a minute is refused, another one comes in", async () => {
    const answer = await auth.signIn("restless");
    const nonces = Array.from({ length: 6 }, (_, at) => String(at).repeat(26));
    const results = [];
    for (const nonce of nonces)
      results.push(
        await auth.connect(answer, nonce).then(
          () => "in",
          () => "out",
        ),
      );
    expect(results).toEqual(["in", "in", "in", "in", "in", "out"]);
    await auth.connect(await auth.signIn("calm"), "c".repeat(26));
  });

  test.each([
    ["no certificate", { COTAL_AUTH_PUBLIC: "main=127.0.0.1:0" }, "COTAL_AUTH_PUBLIC_TLS_CERT"],
    ["no space named", { COTAL_AUTH_PUBLIC: "127.0.0.1:0", COTAL_AUTH_PUBLIC_PLAIN: "true" }, "space=address:port"],
    ["no address", { COTAL_AUTH_PUBLIC: "main=nowhere", COTAL_AUTH_PUBLIC_PLAIN: "true" }, "COTAL_AUTH_PUBLIC"],
  ])("%s: the process ends at once, and says which setting", async (_, env, named) => {
    const error: unknown = await startAuthService(space, { name: "unfit", env, waitMs: 20_000 }).then(
      (started) => started.stop(),
      (thrown: unknown) => thrown,
    );
    expect(String(error)).toContain(named);
    expect(String(error)).toContain('"exitCode":2');
  });

  test("a listener that is taken keeps its space away, says which setting, and is tried again", async () => {
    const second = startAuthService(space, {
      name: "second",
      env: {
        COTAL_SPACES: "main",
        COTAL_AUTH_PUBLIC: `127.0.0.1:${ports.main}`,
        COTAL_AUTH_PUBLIC_PLAIN: "true",
        COTAL_IDP_ISSUER: idp.issuer,
        COTAL_IDP_AUDIENCE: "cotal",
      },
      waitMs: 3000,
    });
    const error: unknown = await second.catch((thrown: unknown) => thrown);
    expect(String(error)).toMatch(/can't listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\)/);
    expect(String(error)).toContain("set COTAL_AUTH_PUBLIC to an address");
    expect(String(error)).toContain("starts again after a wait");
  });
});

test("a certificate that is renewed while it runs is served", async () => {
  const fresh = authority.issue();
  keep("main.crt", fresh.cert);
  keep("main.key", fresh.key);
  const renewed = await eventually(
    () => auth.log(),
    (log) => log.includes("the certificate of the public exchange was renewed"),
  );
  expect(renewed).toContain("was renewed");
  expect((await exchange("main", await idp.signIn("person"))).status).toBe(200);
});

test("nothing that it printed is a key, a token or a bearer", () => {
  expect(auth.log()).not.toMatch(/PRIVATE KEY|eyJ[A-Za-z0-9_-]{20,}\./);
});
