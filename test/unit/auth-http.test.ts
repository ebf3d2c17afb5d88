/** A face over HTTP: who is let through to the exchange, and what junk comes to. */
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compactVerify, createLocalJWKSet } from "jose";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { facePath, newCapability, removeFaceFile, writeFaceFile } from "../../services/auth/edge/face-file.ts";
import {
  type OpenFace,
  type FaceRoute,
  type FaceEvent,
  type FaceOptions,
  startFace,
} from "../../services/auth/edge/http.ts";
import { MAX_BODY_BYTES } from "../../services/auth/edge/http-refusals.ts";
import { ExchangeAnswer, FaceFile } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { type EdgeRig, edgeRig } from "../support/edge-rig.ts";
import { seeded } from "../support/seeded.ts";
import { failure } from "../support/refusal.ts";
import { heapMiB } from "../support/vitals.ts";

const BODY = { space: "main", idToken: "subject:person", actor: "alice" };
const capability = newCapability();
const state = { isReady: true };
const events: FaceEvent[] = [];
let rig: EdgeRig;
let face: OpenFace;

const exchangeRoute = (): FaceRoute => ({
  method: "POST",
  path: "/exchange",
  guarded: true,
  handle: rig.exchange,
});

const optionsOf = (over: Partial<FaceOptions> = {}): FaceOptions => ({
  kind: { face: Face.Loopback, capability, reach: "machine" },
  host: "127.0.0.1",
  port: 0,
  setting: "COTAL_AUTH_FACE_PORT",
  routes: [exchangeRoute()],
  jwks: [rig.signer.jwk],
  isReady: () => state.isReady,
  onEvent: (event) => events.push(event),
  ...over,
});

beforeAll(async () => {
  rig = edgeRig();
  face = await startFace(
    optionsOf({
      routes: [
        exchangeRoute(),
        { method: "POST", path: "/more", guarded: true, handle: (body) => ({ status: 200, body: { got: body } }) },
        {
          method: "GET",
          path: "/broken",
          guarded: false,
          handle: () => Promise.reject(new TypeError("secret inside")),
        },
      ],
    }),
  );
});
afterAll(() => face.close());

type Ask = {
  readonly path?: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
  readonly method?: string;
};

async function ask({ path = "/exchange", body = JSON.stringify(BODY), headers = {}, method = "POST" }: Ask = {}) {
  const response = await fetch(`${face.url}${path}`, {
    method,
    headers: { "content-type": "application/json", "x-cotal-capability": capability, ...headers },
    ...(method === "GET" || method === "HEAD" ? {} : { body }),
  });
  const text = await response.text();
  const json: unknown = text === "" ? undefined : JSON.parse(text);
  return { status: response.status, headers: response.headers, json };
}

async function expectRefused(asked: Ask, status: number, reason: string): Promise<void> {
  const before = rig.ledger.writes.length;
  const answer = await ask(asked);
  expect([answer.status, answer.json]).toMatchObject([status, { reason, error: expect.any(String) as string }]);
  expect(answer.headers.get("content-type")).toMatch(/^application\/json/);
  expect(rig.ledger.writes.length).toBe(before);
}

describe("the exchange over HTTP", () => {
  test("answers with a bearer, and says that nothing of it is to be kept", async () => {
    const { status, json, headers } = await ask();
    expect(status).toBe(200);
    expect(json).toMatchObject({ actor: "alice", owner: rig.ownerOf("person") });
    expect([headers.get("cache-control"), headers.get("x-content-type-options")]).toEqual(["no-store", "nosniff"]);
  });

  test("its key at /jwks verifies the bearer; no private half is shown", async () => {
    const bearer = ExchangeAnswer.shape.bearer.parse(Reflect.get((await ask()).json as object, "bearer"));
    const { json } = await ask({ path: "/jwks", method: "GET", headers: { "x-cotal-capability": "" } });
    const keys = createLocalJWKSet(json as Parameters<typeof createLocalJWKSet>[0]);
    expect((await compactVerify(bearer, keys)).protectedHeader.alg).toBe("EdDSA");
    expect(JSON.stringify(json)).not.toContain('"d"');
  });

  test("W10.23 a limited actor: the header of the answer is the number in its body", async () => {
    const { limits, ownerOf } = rig;
    for (let n = 0; n < 40; n += 1) limits.chargePrincipal({ owner: ownerOf("person"), actor: "busy" });
    const { status, json, headers } = await ask({ body: JSON.stringify({ ...BODY, actor: "busy" }) });
    expect([status, json]).toMatchObject([429, { code: "RATE_LIMITED", limit: "actor" }]);
    expect(headers.get("retry-after")).toBe(String(Reflect.get(json as object, "retryAfterSeconds")));
  });
});

describe("who is let through", () => {
  test("nobody without this start's capability", async () => {
    for (const given of ["", "x", newCapability(), `${capability}x`, capability.slice(1)]) {
      await expectRefused({ headers: { "x-cotal-capability": given } }, 401, "capability");
    }
    await expectRefused({ path: "/more", headers: { "x-cotal-capability": "" } }, 401, "capability");
    expect((await ask({ path: "/more" })).status).toBe(200);
  });

  test("no web page, whatever it carries", async () => {
    for (const origin of ["http://127.0.0.1", "null", "https://evil.example", ""]) {
      await expectRefused({ headers: { origin } }, 403, "origin");
    }
    await expectRefused({ path: "/jwks", method: "GET", headers: { origin: "null" } }, 403, "origin");
    await expectRefused({ method: "OPTIONS", headers: { origin: "http://x" } }, 403, "origin");
  });

  test("JSON only, of at most 64 KiB, and nothing in the address", async () => {
    await expectRefused({ headers: { "content-type": "text/plain" } }, 415, "media-type");
    await expectRefused({ headers: { "content-type": "application/x-www-form-urlencoded" } }, 415, "media-type");
    await expectRefused({ body: "x".repeat(MAX_BODY_BYTES + 1) }, 413, "too-large");
    await expectRefused({ path: "/exchange?idToken=subject:person" }, 400, "query");
    for (const body of ["{", "", '{"__proto__":{}}', "\u0000", '{"a":1}}'])
      await expectRefused({ body }, 400, "malformed");
  });

  test("other paths and methods are none", async () => {
    for (const path of ["/", "/exchange/", "/Exchange", "/metrics", "/..%2fexchange", "/dev/token"]) {
      await expectRefused({ path }, 404, "no-route");
    }
    for (const method of ["PUT", "DELETE", "PATCH", "GET"]) await expectRefused({ method }, 404, "no-route");
  });

  test("whether it lives, and whether it is ready, anybody may ask", async () => {
    const bare = { method: "GET", headers: { "x-cotal-capability": "" } };
    expect((await ask({ path: "/livez", ...bare })).json).toEqual({ status: "ok" });
    expect((await ask({ path: "/readyz", ...bare })).status).toBe(200);
    state.isReady = false;
    onTestFinished(() => void (state.isReady = true));
    expect((await ask({ path: "/readyz", ...bare })).status).toBe(503);
    expect((await ask({ path: "/livez", ...bare })).status).toBe(200);
  });

  test("why something was refused reaches whoever keeps the log, in one word", async () => {
    await expectRefused({ headers: { "x-cotal-capability": "another" } }, 401, "capability");
    await expect.poll(() => events.at(-1)).toEqual({ route: "/exchange", status: 401, reason: "capability" });
    await ask();
    await expect.poll(() => events.at(-1)).toEqual({ route: "/exchange", status: 200 });
  });

  test("what fails inside is told to the log and not to the asker", async () => {
    const { status, json } = await ask({ path: "/broken", method: "GET" });
    expect([status, JSON.stringify(json)]).toEqual([500, expect.not.stringContaining("secret inside")]);
    expect(events.some(({ cause }) => cause instanceof TypeError)).toBe(true);
  });
});

describe("junk", () => {
  /** What a socket hears that sends these bytes and waits for the end. */
  const raw = (bytes: string | Uint8Array): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect(face.port, "127.0.0.1", () => socket.end(bytes));
      const heard: Buffer[] = [];
      socket.on("data", (chunk: Buffer) => heard.push(chunk));
      socket.once("error", reject);
      socket.once("close", () => resolve(Buffer.concat(heard).toString("latin1")));
    });

  test("bytes that are no HTTP are answered with 400, and none of them comes back", async () => {
    const { int } = seeded(7);
    for (let n = 0; n < 100; n += 1) {
      const bytes = Uint8Array.from({ length: int(1, 300) }, () => int(0, 255));
      expect(await raw(bytes)).toMatch(/^(?:HTTP\/1\.1 400 |$)/);
    }
    const secret = "subject:person-in-a-header";
    expect(await raw(`GET /jwks HTTP/1.1\r\nhost: x\r\nx: ${secret.repeat(1000)}\r\n\r\n`)).not.toContain(secret);
    expect(await raw(`BREW ${secret} HTTP/1.1\r\n\r\n`)).not.toContain(secret);
  });

  test("a thousand junk requests to each route: each is answered, memory stays, and the face serves on", async () => {
    const { pick } = seeded(11);
    const paths = ["/exchange", "/jwks", "/livez", "/readyz", "/more", "/none"] as const;
    const one = async (path: string): Promise<number> => {
      const answer = await ask({
        path,
        method: pick(["POST", "POST", "GET", "PUT"]),
        body: pick(["{}", "[]", "null", "{", JSON.stringify({ ...BODY, idToken: "junk" }), "x".repeat(2000)]),
        headers: pick<Record<string, string>>([{}, {}, { "x-cotal-capability": "no" }, { "content-type": "a/b" }]),
      });
      return answer.status;
    };
    const seen = new Set<number>();
    const before = heapMiB();
    for (const path of paths) {
      for (let n = 0; n < 1000; n += 20) {
        for (const status of await Promise.all(Array.from({ length: 20 }, () => one(path)))) seen.add(status);
      }
    }
    expect([...seen].filter((status) => status >= 500)).toEqual([]);
    expect(heapMiB() - before).toBeLessThan(20);
    expect((await ask()).status).toBe(200);
    expect(new Set(events.map(({ route }) => route)).size).toBeLessThan(12);
  }, 60_000);

  test("no event of all this holds a capability, a proof or a bearer", async () => {
    const { json } = await ask();
    const said = JSON.stringify([events, rig.events]);
    expect(said).not.toContain(capability);
    expect(said).not.toContain("subject:person");
    expect(said).not.toContain(String(Reflect.get(json as object, "bearer")));
  });
});

describe("starting and ending", () => {
  test("it listens on this machine alone, and never without a capability", async () => {
    for (const host of ["0.0.0.0", "::", "10.0.0.1", "example.com"]) {
      expect((await failure(startFace(optionsOf({ host })))).code).toBe("failed-precondition");
    }
    for (const reach of ["machine", "container"] as const) {
      const short = { face: Face.Loopback, capability: "short", reach } as const;
      expect((await failure(startFace(optionsOf({ kind: short })))).code).toBe("failed-precondition");
    }
    expect(await failure(startFace(optionsOf({ port: face.port })))).toMatchObject({
      code: "failed-precondition",
      next: expect.stringContaining("COTAL_AUTH_FACE_PORT") as string,
    });
  });

  test("its file is the owner's alone, says where it is, and is gone after the end", () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-face-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = facePath(join(folder, "exchange-{space}.json"), "main");
    writeFaceFile(path, { url: face.url, capability });
    expect(path).toBe(join(folder, "exchange-main.json"));
    expect(FaceFile.parse(JSON.parse(readFileSync(path, "utf8")))).toEqual({ url: face.url, capability });
    expect(statSync(path).mode & 0o777).toBe(0o600);
    removeFaceFile(path, { capability });
    removeFaceFile(path, { capability });
    expect(() => readFileSync(path)).toThrow(/ENOENT/);
  });

  test("its end leaves alone what a process that came after it has written there", () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-face-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = facePath(join(folder, "exchange-{space}.json"), "main");
    const old = { url: face.url, capability: newCapability() };
    const fresh = { url: face.url, capability: newCapability() };
    writeFaceFile(path, old);
    writeFaceFile(path, fresh);
    removeFaceFile(path, old);
    expect(FaceFile.parse(JSON.parse(readFileSync(path, "utf8")))).toEqual(fresh);
  });

  test("an end cuts what is open", async () => {
    const other = await startFace(optionsOf());
    const socket = connect(other.port, "127.0.0.1");
    const cut = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => undefined);
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.write("POST /exchange HTTP/1.1\r\nhost: x\r\n");
    await other.close();
    await cut;
    await expect(fetch(`${other.url}/livez`)).rejects.toThrow("fetch failed");
  });
});
