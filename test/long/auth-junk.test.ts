/**
 * 10,000 junk requests to the callout, of each kind, and to each HTTP route of the auth service, on the
 * loopback face and on the public one: nothing crashes, nothing grows, the log stays short, and honest
 * people come in all the while.
 *
 * What is measured: resident memory of the real process after a collection; after 10,000 requests it lies
 * within 20 MB of what it was after the first 1,000 of the same traffic.
 */
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AuthKeys, readAuthKeys } from "../../services/auth/keys.ts";
import { ChatSessionPath } from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { ExchangeHeader, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { pipelined } from "../bench/jobs.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { newAuthority } from "../support/certificates.ts";
import { INSPECTED, type Watched, watchMemory } from "../support/collected.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { JUNK_KINDS, type JunkCallout, junkCallout } from "../support/junk-callout.ts";
import { type Target, junkHttp } from "../support/junk-http.ts";
import { freePort } from "../support/nats-server.ts";
import { deniedWith } from "../support/raw-connect.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const ALL = 10_000;
const FIRST = 1000;
const AT_ONCE = 64;
/** More at once than a face has connections. */
const SLOW = 600;
const MOST_MB = 20;
/** Lines that refusals may cause in a minute, in all spaces together (`services/auth/spaces.ts`), and a few others. */
const LINES_A_MINUTE = 120;
const OTHER_LINES = 50;

/** What a client may say in its CONNECT line, which has at most 64 KiB. */
const JUNK_BEARERS: Readonly<Record<string, () => Readonly<Record<string, string>>>> = {
  "a token that is none": () => ({ auth_token: randomBytes(60).toString("base64url"), name: "n" }),
  "a token of 60 KB": () => ({ auth_token: "x".repeat(60_000), name: "n" }),
  "a name of 50 KB": () => ({ auth_token: "a.b.c", name: "n".repeat(50_000) }),
};

let idp: IdentityProvider;
let space: TestSpace;
let auth: AuthService;
let memory: Watched;
let ports: { readonly public: number; readonly health: number };
let callout: JunkCallout;
let keys: AuthKeys;

beforeAll(async () => {
  idp = await startIdentityProvider();
  space = await startSpace({ auth: "user" });
  callout = await junkCallout(space.broker.port);
  ports = { public: await freePort(), health: await freePort() };
  const [cert, key] = [join(space.state, "public.pem"), join(space.state, "public.key.pem")];
  const issued = newAuthority().issue();
  writeFileSync(cert, issued.cert);
  writeFileSync(key, issued.key, { mode: 0o600 });
  auth = await startAuthService(space, {
    env: {
      ...INSPECTED,
      COTAL_SERVERS: callout.url,
      COTAL_SPACES: "main",
      COTAL_HEALTH_PORT: String(ports.health),
      COTAL_IDP_ISSUER: idp.issuer,
      COTAL_IDP_AUDIENCE: "cotal",
      COTAL_AUTH_PUBLIC: `main=127.0.0.1:${ports.public}`,
      COTAL_AUTH_PUBLIC_TLS_CERT: cert,
      COTAL_AUTH_PUBLIC_TLS_KEY: key,
    },
  });
  memory = watchMemory(auth);
  keys = readAuthKeys(join(space.state, "spaces", "{space}", "auth"), "main");
}, 60_000);

afterAll(async () => {
  await auth.stop();
  await callout.stop();
  await space.stop();
  await idp.stop();
});

/** Runs a traffic of `ALL` and says how far memory moved after its first part; the process lives on. */
async function expectBounded(name: string, traffic: (count: number) => Promise<unknown>): Promise<void> {
  const pid = auth.pid();
  const [began, lines] = [performance.now(), lineCount()];
  await traffic(FIRST);
  const before = await memory.collectedMiB();
  await traffic(ALL - FIRST);
  const after = await memory.collectedMiB();
  console.log(`${name}: ${before.toFixed(1)} MiB, then ${after.toFixed(1)} MiB`);
  expect(Math.abs(after - before) * 1.048_576).toBeLessThan(MOST_MB);
  const minutes = Math.ceil((performance.now() - began) / 60_000);
  expect(lineCount() - lines).toBeLessThan((minutes + 1) * LINES_A_MINUTE + OTHER_LINES);
  expect(auth.pid()).toBe(pid);
  await expectHonestPeopleComeIn();
}

const lineCount = (): number => auth.log().split("\n").length;

async function expectHonestPeopleComeIn(): Promise<void> {
  const connection = await auth.connect(await auth.signIn("honest"));
  expect(connection.isUp()).toBe(true);
  await connection.close();
}

describe("the callout", () => {
  test.each(JUNK_KINDS.map((kind) => [kind] as const))(
    "10,000 of: %s",
    async (kind) => {
      await expectBounded(kind, (count) => callout.send(kind, count, keys));
    },
    300_000,
  );

  test.each(Object.entries(JUNK_BEARERS))(
    "10,000 through the broker: %s",
    async (name, bearer) => {
      const { sentinel } = await auth.signIn("honest");
      await expectBounded(name, (count) =>
        pipelined(count, 32, async () => {
          expect(await deniedWith(space.broker.port, { jwt: sentinel, ...bearer() })).toContain("Authorization");
        }),
      );
    },
    300_000,
  );
});

const ROUTES: readonly Pick<Target, "method" | "path">[] = [
  { method: "POST", path: ExchangePath.Exchange },
  { method: "POST", path: ExchangePath.ManagerInstances },
  ...Object.values(ChatSessionPath).map((path) => ({ method: "POST", path }) as const),
  { method: "GET", path: ExchangePath.SignIn },
  { method: "GET", path: "/jwks" },
  { method: "GET", path: "/livez" },
  { method: "GET", path: "/readyz" },
];

const SERVERS = {
  "the loopback face": {
    routes: [...ROUTES, { method: "POST", path: ExchangePath.DevToken }, { method: "GET", path: "/dev/jwks" }],
    at: () => {
      const { url, capability } = auth.face();
      return { url, headers: { [ExchangeHeader.Capability]: capability } };
    },
  },
  "the public face": { routes: ROUTES, at: () => ({ url: `https://127.0.0.1:${ports.public}`, headers: {} }) },
  "the health server": {
    routes: ["/livez", "/readyz", "/metrics"].map((path) => ({ method: "GET", path }) as const),
    at: () => ({ url: `http://127.0.0.1:${ports.health}`, headers: {} }),
  },
} as const satisfies Record<string, { readonly routes: readonly object[]; readonly at: () => object }>;

describe.each(Object.entries(SERVERS))("%s", (server, { routes, at }) => {
  test.each(routes.map(({ method, path }) => [method, path] as const))(
    "10,000 to %s %s",
    async (method, path) => {
      const junk = junkHttp({ ...at(), method, path });
      const statuses = new Map<string, number>();
      await expectBounded(`${server}, ${method} ${path}`, (count) =>
        pipelined(count, AT_ONCE, async (n) => {
          const status = String(await junk.send(n));
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
        }),
      );
      junk.close();
      console.log(JSON.stringify(Object.fromEntries(statuses)));
      expect([...statuses.keys()]).not.toContain("500");
    },
    300_000,
  );

  test("bodies that never end are cut, and cost nothing afterwards", async () => {
    const [{ method, path } = { method: "GET", path: "/livez" } as const] = routes;
    const junk = junkHttp({ ...at(), method, path });
    await junk.slow(SLOW);
    const before = await memory.collectedMiB();
    await junk.slow(SLOW);
    await junk.slow(SLOW);
    const after = await memory.collectedMiB();
    junk.close();
    console.log(`${server}, slow bodies: ${before.toFixed(1)} MiB, then ${after.toFixed(1)} MiB`);
    expect(Math.abs(after - before) * 1.048_576).toBeLessThan(MOST_MB);
    await expectHonestPeopleComeIn();
  }, 300_000);
});
