/** One request to the exchange: what is sent, what is taken for an answer, and what an error may say. */
import { type RequestListener, type Server, createServer } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ExchangeAt, askExchange, refusalOf, retryAfterMs } from "../../shared/client/exchange.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { failure } from "../support/refusal.ts";

const SECRET = "c2VjcmV0.dG9rZW4.eA";
const CAPABILITY = "capability-of-this-start";
const request = { space: "main", idToken: SECRET, actor: "alice" };
const good = {
  bearer: "h.b.s",
  expiresAt: 2_000_000_000,
  owner: `u_${"a".repeat(26)}`,
  actor: "alice",
  lifecycleUid: "b".repeat(26),
  sentinel: "h.s.s",
};

let server: Server;
let at: ExchangeAt;
let handle: RequestListener;
beforeAll(async () => {
  server = createServer((incoming, outgoing) => handle(incoming, outgoing));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  at = { url: `http://127.0.0.1:${port}`, capability: CAPABILITY };
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const answering = (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): void => {
  handle = (incoming, outgoing) => {
    incoming.resume();
    outgoing.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
  };
};
const ask = () => askExchange(at, request);

/** Takes one request, and hands back its body. */
function answeringWithWhatWasAsked(): Promise<string> {
  return new Promise((resolve) => {
    handle = (incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => (body += chunk.toString()));
      incoming.on("end", () => {
        outgoing.end(JSON.stringify(good));
        resolve(body);
      });
    };
  });
}

describe("what is sent", () => {
  test("JSON to /exchange, with the capability in a header, the token in the body, and nothing in the address", async () => {
    let seen: { readonly url: string; readonly body: string; readonly headers: object } | undefined;
    handle = (incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => (body += chunk.toString()));
      incoming.on("end", () => {
        seen = { url: incoming.url ?? "", body, headers: incoming.headers };
        outgoing.end(JSON.stringify(good));
      });
    };
    await askExchange({ ...at, url: `${at.url}/base/` }, { ...request, view: "admin" });
    expect(seen?.url).toBe("/base/exchange");
    expect(JSON.parse(seen?.body ?? "")).toEqual({ ...request, view: "admin" });
    expect(seen?.headers).toMatchObject({ "content-type": "application/json", "x-cotal-capability": CAPABILITY });
    expect(seen?.headers).not.toHaveProperty("origin");
  });

  const PARTS = [
    { view: "manager-caller" },
    { view: "manager-caller", managerInstanceId: "m".repeat(26) },
    { view: "session-caller", sessionGrant: { endpoint: "manager", sessionId: "s", epoch: 1, sig: "x", more: 1 } },
    { view: "transfer-writer", transferWriter: { instanceId: "m".repeat(26), hex: "ab".repeat(32) } },
    { view: "dm-reader" },
  ] as const;

  test.each(PARTS)("a view with its own part: $view", async (part) => {
    const body = answeringWithWhatWasAsked();
    await askExchange(at, { ...request, ...part });
    expect(JSON.parse(await body)).toEqual({ ...request, ...part });
  });

  test("W10.33 an agent's owner and secret, and no token", async () => {
    const body = answeringWithWhatWasAsked();
    const agent = { space: "main", actor: "alice", owner: good.owner, secret: "an.agent's secret" };
    await askExchange(at, { ...agent, view: "manager-caller" });
    expect(JSON.parse(await body)).toEqual({ ...agent, view: "manager-caller" });
  });

  test("W10.33 an answer for another owner than the agent's is not believed, and no error repeats the secret", async () => {
    const secret = "an-agents-secret";
    const agent = { space: "main", actor: "alice", owner: `u_${"b".repeat(26)}`, secret };
    answering(200, good);
    expect(await failure(askExchange(at, agent))).toMatchObject({ code: ErrorCode.Internal });
    answering(401, { code: "unauthenticated", error: `no ${secret}`, next: `not ${secret}` });
    const error = await failure(askExchange(at, agent));
    expect(error).toMatchObject({ code: ErrorCode.Unauthenticated });
    expect(`${error.message} ${error.next} ${error.stack}`).not.toContain(secret);
  });

  test.each([
    ["no URL", "127.0.0.1:1", ErrorCode.BadRequest],
    ["another scheme", "ftp://127.0.0.1", ErrorCode.BadRequest],
    ["a secret in it", "https://user:pass@auth.example", ErrorCode.BadRequest],
    ["a query", "https://auth.example/?token=x", ErrorCode.BadRequest],
    ["plain to another machine", "http://auth.example", ErrorCode.FailedPrecondition],
    ["plain to a name that begins like this machine's", "http://127.0.0.1.example", ErrorCode.FailedPrecondition],
  ])("an address with %s is refused before anything is sent", async (_, url, code) => {
    const error = await failure(askExchange({ url }, request));
    expect(error).toMatchObject({ code, outcome: "not-executed" });
    expect(error.message).not.toContain("pass");
  });
});

describe("an answer", () => {
  test("its life is what is left by the service's own clock, at its least", async () => {
    const served = new Date(Date.UTC(2001, 0, 1));
    answering(200, { ...good, expiresAt: served.getTime() / 1000 + 60 }, { date: served.toUTCString() });
    expect((await ask()).lifeMs).toBe(59_000);
  });

  test("more fields than are known are no fault", async () => {
    answering(200, { ...good, servers: ["nats://a:4222"], later: true });
    expect(await ask()).toMatchObject({ bearer: "h.b.s", servers: ["nats://a:4222"] });
  });

  test.each([
    ["no JSON", "<html>"],
    ["another actor", { ...good, actor: "mallory" }],
    ["a bearer that is none", { ...good, bearer: "x" }],
    ["an owner that is none", { ...good, owner: "local" }],
    ["a uid that is none", { ...good, lifecycleUid: "../x" }],
    ["no end", { ...good, expiresAt: undefined }],
    ["too much", { ...good, more: "x".repeat(200_000) }],
  ])("with %s is not understood, and not taken for a refusal of the person", async (_, body) => {
    answering(200, body);
    expect(await failure(ask())).toMatchObject({ code: ErrorCode.Internal });
  });

  test("a redirect is not followed: the token would go with it", async () => {
    let followed = false;
    handle = (incoming, outgoing) => {
      followed ||= incoming.url === "/elsewhere";
      incoming.resume();
      outgoing.writeHead(307, { location: "/elsewhere" }).end();
    };
    expect(await failure(ask())).toMatchObject({ code: ErrorCode.Unavailable });
    expect(followed).toBe(false);
  });
});

describe("a refusal", () => {
  test("keeps its code, its sentence and what to do; what was sent is cut out of both", async () => {
    answering(403, { code: "permission-denied", error: `no ${SECRET}\n${CAPABILITY}`, next: `ask for ${SECRET}` });
    const error = await failure(ask());
    expect(error).toMatchObject({ code: ErrorCode.PermissionDenied, next: "ask for ..." });
    expect(error.message).toBe("the exchange refuses: no ... ...");
  });

  test.each([
    [401, ErrorCode.Unauthenticated],
    [403, ErrorCode.PermissionDenied],
    [404, ErrorCode.NotFound],
    [418, ErrorCode.BadRequest],
    [500, ErrorCode.Unavailable],
    [503, ErrorCode.Unavailable],
  ])("of status %i without a reason is %s", async (status, code) => {
    answering(status, "oops");
    expect(await failure(ask())).toMatchObject({ code });
  });

  test("W10.24: a 429 says for how long, by its body, else by its header, else for a second", async () => {
    answering(429, { code: "RATE_LIMITED", retryAfterSeconds: 7, limit: "owner", error: "x" }, { "retry-after": "9" });
    expect(retryAfterMs(await failure(ask()))).toBe(7000);
    answering(429, { code: "resource-exhausted", error: "x" }, { "retry-after": "9" });
    expect(retryAfterMs(await failure(ask()))).toBe(9000);
    answering(429, "", { "retry-after": "tomorrow" });
    expect(retryAfterMs(await failure(ask()))).toBe(1000);
  });

  test("nobody there: unavailable, with the address and no secret", async () => {
    const error = await failure(askExchange({ url: "http://127.0.0.1:1", capability: CAPABILITY }, request));
    expect(error).toMatchObject({ code: ErrorCode.Unavailable });
    expect(error.message).toContain("127.0.0.1:1");
    const { message, next, stack } = error;
    expect(`${message} ${next} ${stack} ${JSON.stringify(error)}`).not.toMatch(/c2VjcmV0|capability-of/);
  });

  test("whatever a body holds, it ends as one of our errors and never repeats a secret", () => {
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 599 }), fc.jsonValue(), fc.string(), (status, body, text) => {
        const bodies = [body, { code: "bad-request", error: `${text}${SECRET}${text}`, next: SECRET }];
        for (const one of bodies) {
          const error = refusalOf(status, text, one, [SECRET]);
          expect(Object.values(ErrorCode)).toContain(error.code);
          expect(`${error.message} ${error.next}`).not.toContain(SECRET);
        }
      }),
    );
  });
});
