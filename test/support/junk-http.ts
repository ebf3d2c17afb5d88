/** Junk for one route of an HTTP face: each request wrong in another way. */
import { randomBytes } from "node:crypto";
import { Agent, request } from "node:http";
import { Agent as SecureAgent, request as requestSecure } from "node:https";
import { type Socket, connect as dial } from "node:net";
import { connect as dialSecure } from "node:tls";

export type Target = {
  /** `http://…` or `https://…`, without a path. */
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  /** What an honest client would send with it. */
  readonly headers: Readonly<Record<string, string>>;
};

type Sent = {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
};

/** A status, or `undefined` where the connection was ended instead. */
type Answer = number | undefined;

export type JunkHttp = {
  /** The n-th kind, again and again. */
  readonly send: (n: number) => Promise<Answer>;
  /** That many at once whose bodies come a byte a second; resolves once all of them are cut. */
  readonly slow: (count: number) => Promise<void>;
  readonly close: () => void;
};

const JSON_TYPE = { "content-type": "application/json" };
const claims = Buffer.from(JSON.stringify({ iss: "https://idp.test", sub: "x", exp: 9e9 })).toString("base64url");
const token = (header: object, signature = ""): string =>
  `${Buffer.from(JSON.stringify(header)).toString("base64url")}.${claims}.${signature}`;
const json = (body: unknown): Sent => ({ headers: JSON_TYPE, body: JSON.stringify(body) });
const withToken = (idToken: string): Sent => json({ space: "main", idToken, actor: "junk" });

/** Anew each time: none may be known from before. */
const KINDS: readonly ((target: Target) => Sent)[] = [
  () => ({ headers: JSON_TYPE, body: `{"space": "main", ${randomBytes(30).toString("base64")}` }),
  () => ({ headers: JSON_TYPE, body: randomBytes(500) }),
  () => ({ headers: JSON_TYPE, body: "[".repeat(20_000) }),
  () => ({ headers: JSON_TYPE, body: '{"__proto__": {"space": "main"}, "constructor": {"prototype": {}}}' }),
  () => ({ headers: JSON_TYPE, body: JSON.stringify({ space: "x".repeat(200_000) }) }),
  () => ({ headers: { ...JSON_TYPE, "transfer-encoding": "chunked" }, body: "9".repeat(200_000) }),
  () => withToken("x".repeat(60_000)),
  () => json({ space: 5, idToken: {}, actor: [], view: null, owner: true, secret: 1e308, more: { deep: [[[]]] } }),
  () => json([{ space: "main" }]),
  () => json(null),
  () => withToken(randomBytes(200).toString("base64url")),
  () => withToken(token({ alg: "none" })),
  () => withToken(token({ alg: "RS256", kid: randomBytes(6).toString("hex") }, randomBytes(256).toString("base64url"))),
  () => withToken(token({ alg: "HS256", typ: "JWT" }, randomBytes(32).toString("base64url"))),
  () => json({ space: "main", owner: `u_${"a".repeat(26)}`, actor: "junk", secret: randomBytes(32).toString("hex") }),
  () => ({ ...withToken("a.b.c"), headers: { ...JSON_TYPE, "x-cotal-capability": randomBytes(32).toString("hex") } }),
  () => ({ ...withToken("a.b.c"), headers: { ...JSON_TYPE, origin: "https://evil.test" } }),
  () => ({ body: randomBytes(300), headers: { "content-type": `multipart/form-data; boundary=${"-".repeat(300)}` } }),
  () => ({ body: "a=b", headers: { "content-type": "text/plain" } }),
  () => ({ ...withToken("a.b.c"), headers: { ...JSON_TYPE, cookie: "c".repeat(9000) } }),
  () => ({
    ...withToken("a.b.c"),
    headers: {
      ...JSON_TYPE,
      ...Object.fromEntries(Array.from({ length: 90 }, (_, at) => [`x-junk-${at}`, "j".repeat(20)])),
    },
  }),
  ({ path }) => ({ ...withToken("a.b.c"), path: `${path}?token=${randomBytes(30).toString("hex")}` }),
  ({ path }) => ({ ...withToken("a.b.c"), path: `${path}/%2e%2e/${randomBytes(10).toString("hex")}%00%ff` }),
  ...["DELETE", "PUT", "PATCH", "OPTIONS", "PROPFIND"].map((method) => (): Sent => ({ ...json({}), method })),
];

/** After them: bytes on a bare connection. */
const BARE = ["no http", "cut"] as const;

/** A GET would send its body without one, which is junk of one kind only. */
function lengthOf({ body = "", headers = {} }: Sent): Readonly<Record<string, string>> {
  return "transfer-encoding" in headers ? {} : { "content-length": String(Buffer.byteLength(body)) };
}

export function junkHttp(target: Target): JunkHttp {
  const { url, path, headers } = target;
  const at = new URL(url);
  const secure = at.protocol === "https:";
  const agent = secure
    ? new SecureAgent({ keepAlive: true, rejectUnauthorized: false })
    : new Agent({ keepAlive: true });
  const open = (): Socket => {
    const to = { host: at.hostname, port: Number(at.port) };
    return secure ? dialSecure({ ...to, rejectUnauthorized: false }) : dial(to);
  };
  const ask = (sent: Sent): Promise<Answer> =>
    new Promise((resolve) => {
      const make = secure ? requestSecure : request;
      const asked = make(`${url}${sent.path ?? path}`, {
        agent,
        method: sent.method ?? target.method,
        headers: { ...headers, ...lengthOf(sent), ...sent.headers },
      });
      asked.once("error", () => resolve(undefined));
      asked.once("response", (response) => {
        response.resume();
        response.once("error", () => resolve(response.statusCode));
        response.once("end", () => resolve(response.statusCode));
      });
      asked.end(sent.body);
    });
  const head = (length: number): string =>
    `${target.method} ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n`;
  const named = Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("");
  /** Bytes that are no HTTP, or the beginning of a body that never comes. */
  const bare = (kind: (typeof BARE)[number]): Promise<Answer> =>
    new Promise((resolve) => {
      const socket = open();
      socket.on("error", () => undefined);
      socket.once("close", () => resolve(undefined));
      socket.resume();
      if (kind === "no http") socket.end(randomBytes(2000));
      else socket.write(`${head(50_000)}${named}\r\n{"space":`, () => socket.destroy());
    });
  return {
    send: (n) => {
      const kind = n % (KINDS.length + BARE.length);
      const made = KINDS[kind]?.(target);
      return made === undefined ? bare(BARE[kind - KINDS.length] ?? "cut") : ask(made);
    },
    slow: async (count) => {
      await Promise.all(
        Array.from(
          { length: count },
          () =>
            new Promise<void>((resolve) => {
              const socket = open();
              const drip = setInterval(() => socket.write("x"), 1000);
              socket.on("error", () => undefined);
              socket.once("close", () => {
                clearInterval(drip);
                resolve();
              });
              socket.resume();
              socket.write(`${head(50_000)}${named}\r\n{`);
            }),
        ),
      );
    },
    close: () => agent.destroy(),
  };
}
