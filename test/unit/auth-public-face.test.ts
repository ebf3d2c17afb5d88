/** The public face: TLS, whose address counts, what it serves and what only the loopback face does. */
import { X509Certificate } from "node:crypto";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PeerCertificate, connect as connectTls } from "node:tls";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { newCapability } from "../../services/auth/edge/face-file.ts";
import { MAX_BODY_BYTES } from "../../services/auth/edge/http-refusals.ts";
import { DevToken, ExchangeHeader, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face, VIEWS, View } from "../../shared/protocol/endpoint/views.ts";
import { type Authority, type Certificate, newAuthority } from "../support/certificates.ts";
import {
  type Answered,
  type Asked,
  PLAIN_PUBLIC,
  type TestFaces,
  type TestFacesOptions,
  ask,
  startFaces,
} from "../support/faces.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

const BOTH = [Face.Loopback, Face.Public] as const;
const folder = mkdtempSync(join(tmpdir(), "cotal-tls-"));
const authority: Authority = newAuthority();
let idp: IdentityProvider;
let trusted: NonNullable<TestFacesOptions["idp"]>;

beforeAll(async () => {
  idp = await startIdentityProvider();
  trusted = { issuer: idp.issuer, audience: "cotal", algorithms: ["RS256", "EdDSA"], scopes: ["openid"] };
});
afterAll(async () => {
  await idp.stop();
  rmSync(folder, { recursive: true });
});

/** A pair in files of its own. */
function filesOf({ cert, key }: Certificate, name: string) {
  const files = { cert: join(folder, `${name}.crt`), key: join(folder, `${name}.key`), lookMs: 20 };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key, { mode: 0o600 });
  return files;
}

async function open(options: TestFacesOptions = {}): Promise<TestFaces> {
  const faces = await startFaces({ idp: trusted, publicFace: PLAIN_PUBLIC, ...options });
  onTestFinished(() => faces.close());
  return faces;
}

const bodyOf = (idToken: string, over: object = {}): string =>
  JSON.stringify({ space: "main", idToken, actor: "alice", ...over });

/** Asks as programs of that face do. */
function askAs(faces: TestFaces, face: Face, path: string, asked: Asked = {}): Promise<Answered> {
  const capability = face === Face.Loopback ? { "x-cotal-capability": faces.capability() } : {};
  return ask(`${faces.url(face)}${path}`, { ...asked, headers: { ...capability, ...asked.headers } });
}

describe("what a face serves", () => {
  const ROUTES: readonly [method: string, path: string, loopback: number, everybody: number][] = [
    ["POST", "/exchange", 200, 200],
    // What is sent does not have their shape; they are there.
    ["POST", "/manager-instances", 400, 400],
    ["POST", "/chat-session/open", 400, 400],
    ["POST", "/chat-session/bearer", 400, 400],
    ["POST", "/chat-session/retire", 400, 400],
    ["GET", "/sign-in", 200, 200],
    ["GET", "/jwks", 200, 200],
    ["GET", "/livez", 200, 200],
    ["GET", "/readyz", 200, 200],
    ["POST", "/dev/token", 200, 404],
    ["GET", "/dev/jwks", 200, 404],
    ["GET", "/metrics", 404, 404],
  ];

  test("W10.15 each route on each face; the development issuer's on the loopback face alone", async () => {
    const faces = await open({ devIssuer: true });
    const idToken = await idp.signIn("person");
    for (const [method, path, loopback, everybody] of ROUTES) {
      const asked: Asked = method === "GET" ? { method } : { method, body: bodyOf(idToken) };
      const seen = await Promise.all(BOTH.map(async (face) => (await askAs(faces, face, path, asked)).status));
      expect([path, ...seen]).toEqual([path, loopback, everybody]);
    }
  });

  test("the public face asks for no capability, and the loopback face for its own, on every route that does something", async () => {
    const faces = await open({ devIssuer: true });
    const body = bodyOf(await idp.signIn("person"));
    for (const [method, path] of ROUTES) {
      if (method === "GET") continue;
      const bare = await ask(`${faces.url(Face.Loopback)}${path}`, { body });
      expect([bare.status, bare.json["reason"]]).toEqual([401, "capability"]);
    }
    const given = { "x-cotal-capability": "anything" };
    expect((await ask(`${faces.url(Face.Public)}/exchange`, { body, headers: given })).status).toBe(200);
  });

  test.each(BOTH)(
    "W10.31 the doors of chat sessions are there, and say that what was refused did not run: %s",
    async (face) => {
      const faces = await open();
      for (const door of ["open", "bearer", "retire"]) {
        const answer = await askAs(faces, face, `/chat-session/${door}`, { body: bodyOf(await idp.signIn("person")) });
        expect([answer.status, answer.json["outcome"]]).toEqual([400, "not-executed"]);
      }
    },
  );

  test("one person is the same owner on both, and either's bearers are of the one key", async () => {
    const faces = await open();
    const body = bodyOf(await idp.signIn("person"));
    const [here, there] = await Promise.all(BOTH.map((face) => askAs(faces, face, "/exchange", { body })));
    expect(here?.json).toMatchObject({ owner: there?.json["owner"], lifecycleUid: there?.json["lifecycleUid"] });
    const keys = await Promise.all(BOTH.map((face) => askAs(faces, face, "/jwks", { method: "GET" })));
    expect(keys[0]?.json).toEqual(keys[1]?.json);
  });

  test.each(BOTH)("no web page, no query, JSON of 64 KiB at most: %s", async (face) => {
    const faces = await open();
    const body = bodyOf(await idp.signIn("person"));
    const refused: readonly [asked: Asked & { readonly path?: string }, status: number, reason: string][] = [
      [{ body, headers: { origin: "https://console.example" } }, 403, "origin"],
      [{ body, headers: { origin: "null" } }, 403, "origin"],
      [{ body, path: "/exchange?actor=alice" }, 400, "query"],
      [{ body, headers: { "content-type": "text/plain" } }, 415, "media-type"],
      [{ body: `"${"x".repeat(MAX_BODY_BYTES)}"` }, 413, "too-large"],
      [{ body: "{" }, 400, "malformed"],
    ];
    for (const [{ path = "/exchange", ...asked }, status, reason] of refused) {
      const answer = await askAs(faces, face, path, asked);
      expect([answer.status, answer.json["reason"]]).toEqual([status, reason]);
    }
    expect(faces.rig.ledger.writes).toEqual([]);
    expect((await askAs(faces, face, "/exchange", { body })).status).toBe(200);
  });
});

describe("W10.10 views by face, over HTTP", () => {
  const parts: Readonly<Partial<Record<View, object>>> = {
    [View.SessionCaller]: { sessionGrant: { endpoint: "manager", sessionId: "s", epoch: 1, sig: "x" } },
    [View.TransferWriter]: { transferWriter: { instanceId: "m".repeat(26), hex: "a".repeat(64) } },
  };

  test.each(Object.values(View))(
    "W10.10 %s is looked at where it may be issued, and refused on every other face",
    async (view) => {
      const faces = await open();
      const idToken = await idp.signIn("person");
      // The ordinary token of a person: a dm-reader's is another one, and refused as a proof before its face counts.
      const expected = view === View.DmReader ? [false, false] : BOTH.map((face) => !VIEWS[view].faces.includes(face));
      const refusedForFace: boolean[] = [];
      for (const face of BOTH) {
        const body = bodyOf(idToken, { view, ...parts[view] });
        const answer = await askAs(faces, face, "/exchange", { body });
        expect(answer.status).not.toBe(200);
        refusedForFace.push(answer.json["reason"] === "view-face");
      }
      expect(refusedForFace).toEqual(expected);
    },
  );
});

describe("the development issuer", () => {
  test("its tokens are worth nothing on the public face, and nothing is written for them", async () => {
    const faces = await open({ devIssuer: true });
    const { idToken } = DevToken.parse((await askAs(faces, Face.Loopback, "/dev/token", { body: "{}" })).json);
    const answer = await askAs(faces, Face.Public, "/exchange", { body: bodyOf(idToken) });
    expect([answer.status, answer.json["reason"]]).toEqual([401, "proof-unknown-key"]);
    expect(faces.rig.ledger.writes).toEqual([]);
    expect((await askAs(faces, Face.Loopback, "/exchange", { body: bodyOf(idToken) })).status).toBe(200);
    expect(faces.devNotices()).toBe(1);
  });

  test("it is not enough for a public face: that one is refused, and nothing stays open", async () => {
    const error = await failure(startFaces({ devIssuer: true, publicFace: PLAIN_PUBLIC }));
    expect(error).toMatchObject({
      code: "failed-precondition",
      next: expect.stringContaining("COTAL_IDP_ISSUER") as string,
    });
    const without = await failure(startFaces({ publicFace: undefined }));
    expect(without).toMatchObject({ code: "failed-precondition" });
  });

  test("it is told of once where it is on, and never where it is off", async () => {
    expect((await open({ devIssuer: true })).devNotices()).toBe(1);
    expect((await open()).devNotices()).toBe(0);
  });
});

describe("two spaces in one process", () => {
  test("W10.04 each listener mints for its own space: a request and a bearer of the other one are worth nothing", async () => {
    const [main, lab] = [await open(), await open({ space: "lab" })];
    const idToken = await idp.signIn("person");
    const mine = await askAs(main, Face.Public, "/exchange", { body: bodyOf(idToken) });
    expect(mine.status).toBe(200);
    for (const face of BOTH) {
      const answer = await askAs(lab, face, "/exchange", { body: bodyOf(idToken) });
      expect([answer.status, answer.json["reason"]]).toEqual([400, "other-space"]);
      const asProof = await askAs(lab, face, "/exchange", {
        body: bodyOf(String(mine.json["bearer"]), { space: "lab" }),
      });
      expect([asProof.status, asProof.json["code"]]).toEqual([401, "unauthenticated"]);
    }
    expect(lab.rig.ledger.writes).toEqual([]);
    const keys = await Promise.all([main, lab].map((of) => askAs(of, Face.Public, "/jwks", { method: "GET" })));
    expect(keys[0]?.json).not.toEqual(keys[1]?.json);
    const own = await askAs(lab, Face.Public, "/exchange", { body: bodyOf(idToken, { space: "lab" }) });
    expect([own.status, own.json["owner"] === mine.json["owner"]]).toEqual([200, false]);
  });
});

describe("TLS", () => {
  const fingerprintAt = (port: number): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connectTls({ host: "127.0.0.1", port, ca: authority.ca }, () => {
        const certificate: PeerCertificate = socket.getPeerCertificate();
        socket.destroy();
        resolve(certificate.fingerprint256);
      });
      socket.once("error", reject);
    });
  const portOf = (faces: TestFaces): number => Number(new URL(faces.url(Face.Public)).port);
  const secure = (tls: { readonly cert: string; readonly key: string; readonly lookMs?: number }) =>
    open({ publicFace: { ...PLAIN_PUBLIC, tls } });

  test("a client that trusts the authority signs in over it; one that does not, or asks plainly, hears nothing", async () => {
    const faces = await secure(filesOf(authority.issue(), "first"));
    const url = `${faces.url(Face.Public)}/exchange`;
    expect(url).toMatch(/^https:/);
    const body = bodyOf(await idp.signIn("person"));
    expect((await ask(url, { body, ca: authority.ca })).status).toBe(200);
    await expect(ask(url, { body, ca: newAuthority().ca })).rejects.toThrow(/certificate/i);
    await expect(ask(url.replace("https:", "http:"), { body })).rejects.toThrow(/socket hang up|ECONNRESET/);
    expect((await ask(url, { body, ca: authority.ca })).status).toBe(200);
  });

  test("nothing older than TLS 1.2", async () => {
    const faces = await secure(filesOf(authority.issue(), "old"));
    const dial = (maxVersion: "TLSv1.1" | "TLSv1.2"): Promise<string | null> =>
      new Promise((resolve, reject) => {
        const old = { minVersion: "TLSv1" as const, maxVersion, ciphers: "DEFAULT@SECLEVEL=0" };
        const socket = connectTls({ host: "127.0.0.1", port: portOf(faces), ca: authority.ca, ...old }, () => {
          const protocol = socket.getProtocol();
          socket.destroy();
          resolve(protocol);
        });
        socket.once("error", reject);
      });
    await expect(dial("TLSv1.1")).rejects.toThrow(/alert protocol version|ECONNRESET|unsupported protocol/);
    expect(await dial("TLSv1.2")).toBe("TLSv1.2");
  });

  test("a renewed certificate is served without a restart; one that can't be used is told, and changes nothing", async () => {
    const [first, second, third] = [authority.issue(), authority.issue(), authority.issue()];
    const files = filesOf(first, "renewed");
    const faces = await secure(files);
    expect(await fingerprintAt(portOf(faces))).toBe(first.fingerprint);
    // Half of a renewal: the certificate is there before its key.
    writeFileSync(files.cert, second.cert);
    await expect.poll(() => faces.tlsEvents.map(({ kind }) => kind), { timeout: 10_000 }).toEqual(["ends", "kept"]);
    expect(await fingerprintAt(portOf(faces))).toBe(first.fingerprint);
    writeFileSync(files.key, second.key);
    await expect.poll(() => fingerprintAt(portOf(faces)), { timeout: 10_000 }).toBe(second.fingerprint);
    rmSync(files.key);
    await expect.poll(() => faces.tlsEvents.at(-1)?.kind, { timeout: 10_000 }).toBe("kept");
    expect(await fingerprintAt(portOf(faces))).toBe(second.fingerprint);
    filesOf(third, "renewed");
    await expect.poll(() => fingerprintAt(portOf(faces)), { timeout: 10_000 }).toBe(third.fingerprint);
    // Each that is served tells its end.
    expect(faces.tlsEvents.filter(({ kind }) => kind === "ends")).toEqual(
      [first, second, third].map(({ cert }) => ({ kind: "ends", at: Date.parse(new X509Certificate(cert).validTo) })),
    );
    expect(JSON.stringify(faces.tlsEvents)).not.toContain("PRIVATE");
  });

  test("a key that others can read is told", async () => {
    const files = filesOf(authority.issue(), "open");
    rmSync(files.key);
    writeFileSync(files.key, authority.issue().key, { mode: 0o644 });
    const error = await failure(secure(files));
    expect(error.message).toContain("COTAL_AUTH_PUBLIC_TLS_KEY");
    const fit = authority.issue();
    writeFileSync(files.cert, fit.cert);
    writeFileSync(files.key, fit.key);
    const faces = await secure(files);
    expect(faces.tlsEvents.at(-1)).toMatchObject({
      kind: "exposed",
      warning: expect.stringContaining("0644") as string,
    });
  });

  test("without a pair that fits there is no face; the setting and the file are named, and nothing of either", async () => {
    const good = filesOf(authority.issue(), "good");
    const junk = join(folder, "junk");
    writeFileSync(junk, "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n");
    const missing = await failure(secure({ ...good, cert: join(folder, "none.crt") }));
    expect(missing).toMatchObject({
      code: "failed-precondition",
      message: expect.stringMatching(/none\.crt of COTAL_AUTH_PUBLIC_TLS_CERT does not exist/) as string,
    });
    const unread = await failure(secure({ ...good, cert: junk }));
    expect(unread).toMatchObject({
      code: "failed-precondition",
      message: expect.not.stringContaining("c2Vj") as string,
    });
    const other = await failure(secure({ ...good, key: filesOf(authority.issue(), "other").key }));
    expect(other.message).toContain("no certificate with its own key");
  });

  test("an end cuts a handshake that was begun", async () => {
    const faces = await secure(filesOf(authority.issue(), "end"));
    const socket = connect(portOf(faces), "127.0.0.1");
    socket.on("error", () => undefined);
    const cut = new Promise((resolve) => socket.once("close", resolve));
    await new Promise((resolve) => socket.once("connect", resolve));
    await faces.close();
    await cut;
    expect(existsSync(faces.file)).toBe(false);
  }, 6_000);
});

describe("whose address counts", () => {
  /** Bad proofs until one is told to wait; how many were told the reason before. */
  async function told(faces: TestFaces, headers: Record<string, string>): Promise<number> {
    for (let n = 0; n < 10; n += 1) {
      const { status } = await askAs(faces, Face.Public, "/exchange", { body: bodyOf("a.b.c"), headers });
      if (status === 429) return n;
    }
    return Number.POSITIVE_INFINITY;
  }
  const behind = (proxies: readonly string[]) =>
    open({ probes: { burst: 3, perMinute: 1 }, publicFace: { ...PLAIN_PUBLIC, proxies } });
  const from = (address: string): Record<string, string> => ({ "x-forwarded-for": address });

  test("behind a trusted proxy each client has a budget of its own", async () => {
    const faces = await behind(["127.0.0.0/8"]);
    expect(await told(faces, from("198.51.100.1"))).toBe(3);
    expect(await told(faces, from("198.51.100.2"))).toBe(3);
    expect(await told(faces, from("198.51.100.1"))).toBe(0);
  });

  test("what a client itself writes before the proxy's own entry counts for nothing", async () => {
    const faces = await behind(["127.0.0.1"]);
    expect(await told(faces, from("203.0.113.1, 198.51.100.1"))).toBe(3);
    expect(await told(faces, from("203.0.113.2, 198.51.100.1"))).toBe(0);
    expect(await told(faces, from("junk, 198.51.100.1"))).toBe(0);
  });

  test("from anybody else the header is not read, on either face", async () => {
    for (const proxies of [[], ["192.0.2.1"]]) {
      const faces = await behind(proxies);
      expect(await told(faces, from("198.51.100.1"))).toBe(3);
      expect(await told(faces, from("198.51.100.2"))).toBe(0);
      expect((await askAs(faces, Face.Loopback, "/exchange", { body: bodyOf("a.b.c") })).status).toBe(401);
    }
  });
});

describe("those who take their time", () => {
  /** Sends these bytes one by one, a few a second, until the other side ends it. */
  function dribble(port: number, text: string): Promise<void> {
    return new Promise((resolve) => {
      const socket = connect(port, "127.0.0.1");
      let at = 0;
      const timer = setInterval(() => {
        if (at < text.length) socket.write(text.charAt(at));
        at += 1;
      }, 300);
      socket.on("error", () => undefined);
      socket.resume();
      socket.once("close", () => {
        clearInterval(timer);
        resolve();
      });
    });
  }

  test("silence, a handshake, headers and a body that never end are cut on each face, and others are served meanwhile", async () => {
    const plain = await open();
    const secured = await open({ publicFace: { ...PLAIN_PUBLIC, tls: filesOf(authority.issue(), "slow") } });
    const [loopback, everybody] = BOTH.map((face) => Number(new URL(plain.url(face)).port));
    const tls = Number(new URL(secured.url(Face.Public)).port);
    const headers = `POST /exchange HTTP/1.1\r\nhost: x\r\n${"x: y\r\n".repeat(50)}`;
    const body = `POST /exchange HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n${"x".repeat(900)}`;
    const slow = [loopback, everybody].flatMap((port) =>
      ["", headers, body].flatMap((text) => Array.from({ length: 20 }, () => dribble(port ?? 0, text))),
    );
    const handshakes = ["", "\u0016\u0003\u0001\u0002\u0000"].map((text) => dribble(tls, text));
    const idToken = await idp.signIn("person");
    for (const face of BOTH)
      expect((await askAs(plain, face, "/exchange", { body: bodyOf(idToken) })).status).toBe(200);
    const asked = { body: bodyOf(idToken), ca: authority.ca };
    expect((await ask(`${secured.url(Face.Public)}/exchange`, asked)).status).toBe(200);
    await Promise.all([...slow, ...handshakes]);
    expect((await ask(`${secured.url(Face.Public)}/exchange`, asked)).status).toBe(200);
  }, 25_000);
});

test("a place that is taken is told, with the setting that says where", async () => {
  const port = await freePort();
  await open({ publicFace: { ...PLAIN_PUBLIC, port } });
  const taken = await failure(startFaces({ idp: trusted, publicFace: { ...PLAIN_PUBLIC, port } }));
  expect(taken).toMatchObject({
    code: "failed-precondition",
    message: expect.stringContaining(`127.0.0.1:${port} (EADDRINUSE)`) as string,
    next: expect.stringContaining("COTAL_AUTH_PUBLIC ") as string,
  });
  const own = await open({ operatorFace: { kind: "machine", port: await freePort() } });
  const ownPort = Number(new URL(own.url(Face.Loopback)).port);
  const other = await failure(startFaces({ idp: trusted, operatorFace: { kind: "machine", port: ownPort } }));
  expect(other).toMatchObject({ next: expect.stringContaining("COTAL_AUTH_FACE_PORT") as string });
});

test("in a container two instances share the capability of a file, and no other opens either (decision 30)", async () => {
  const folder = mkdtempSync(join(tmpdir(), "cotal-capability-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "face.capability");
  const operatorFace = { kind: "container", host: "0.0.0.0", port: 0, capability: file } as const;
  for (const text of [undefined, "", "short", `${"a".repeat(42)} `]) {
    if (text !== undefined) writeFileSync(file, text);
    expect(await failure(startFaces({ devIssuer: true, operatorFace }))).toMatchObject({
      code: "failed-precondition",
      message: `${file} does not hold a capability`,
    });
  }
  const capability = newCapability();
  writeFileSync(file, `${capability}\n`);
  for (const face of [await open({ devIssuer: true, operatorFace }), await open({ devIssuer: true, operatorFace })]) {
    const url = face.url(Face.Loopback).replace("0.0.0.0", "127.0.0.1");
    const tokenFor = (given: string) =>
      ask(`${url}${ExchangePath.DevToken}`, { headers: { [ExchangeHeader.Capability]: given }, body: "{}" });
    expect((await tokenFor(capability)).status).toBe(200);
    expect((await tokenFor(newCapability())).status).toBe(401);
  }
});
