/** The client of chat sessions, against a service that a test scripts. */
import { createServer } from "node:http";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type ChatSessionOptions, openChatSession } from "../../shared/client/chat-session.ts";
import { ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import {
  ChatHolderRequest,
  ChatOpenRequest,
  ChatSessionPath,
} from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { hashOf } from "../support/chat-parts.ts";
import { failure } from "../support/refusal.ts";

const OWNER = `u_${"a".repeat(26)}`;
const ACTOR = `chat_${"b".repeat(26)}`;
const UID = "u".repeat(26);
const ID_TOKEN = "aWQ.dG9rZW4.c2VjcmV0";
const session = { owner: OWNER, actor: ACTOR, lifecycleUid: UID };
const expiresAt = Math.floor(Date.now() / 1000) + 600;
const OPENED = {
  status: 200,
  body: { ...session, name: "Ada (chat)", expiresAt, allowSubscribe: [">"], allowPublish: [] },
};
const BEARER = { status: 200, body: { ...session, bearer: "a.b.c", expiresAt, sentinel: "s.t.u" } };
const RETIRED = { status: 200, body: { ...session, settled: true } };

/** An answer, or none: the connection is cut. */
type Answer = { readonly status: number; readonly body: object } | "cut";

let url = "";
let script: Answer[] = [];
const seen: { readonly path: string; readonly body: Record<string, unknown>; readonly capability: unknown }[] = [];
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
    seen.push({ path: request.url ?? "", body, capability: request.headers["x-cotal-capability"] });
    const answer = script.shift() ?? "cut";
    if (answer === "cut") return void request.socket.destroy();
    response.writeHead(answer.status, { "content-type": "application/json" }).end(JSON.stringify(answer.body));
  });
});

beforeAll(async () => {
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
});
beforeEach(() => {
  seen.length = 0;
  script = [];
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const secretOf = (): string => String(seen.find(({ path }) => path !== ChatSessionPath.Open)?.body["holderSecret"]);
const open = (more: Partial<ChatSessionOptions> = {}) =>
  openChatSession({
    exchange: { url, capability: "c".repeat(43) },
    space: "main",
    idToken: () => Promise.resolve(ID_TOKEN),
    ...more,
  });

describe("what is asked", () => {
  test("W10.25 W10.28 the hash to open, the secret of that hash for a bearer and to retire; all of it as the service takes it", async () => {
    script = [OPENED, BEARER, RETIRED];
    const chat = await open({ allowSubscribe: ["general"], lifeSeconds: 600 });
    expect(chat).toMatchObject({ ...session, name: "Ada (chat)", expiresAt });
    const got = await chat.credentials.fetch(AbortSignal.timeout(5000));
    expect(got).toMatchObject({ bearer: "a.b.c", actor: ACTOR });
    expect(got.lifeMs).toBeLessThanOrEqual(600_000);
    expect(await chat.retire()).toEqual({ settled: true });
    expect(seen.map(({ path }) => path)).toEqual([
      "/chat-session/open",
      "/chat-session/bearer",
      "/chat-session/retire",
    ]);
    const [asked, ...held] = seen.map(({ body }) => body);
    expect(ChatOpenRequest.parse(asked)).toMatchObject({
      space: "main",
      allowSubscribe: ["general"],
      lifeSeconds: 600,
    });
    expect(Object.keys(asked ?? {})).not.toContain("holderSecret");
    for (const body of held) expect(hashOf(ChatHolderRequest.parse(body).holderSecret)).toBe(asked?.["holderHash"]);
    expect(new Set(seen.map(({ capability }) => capability))).toEqual(new Set(["c".repeat(43)]));
  });

  test("two sessions have two secrets, and neither is to be found in what is handed back", async () => {
    script = [OPENED, RETIRED, OPENED];
    const chat = await open();
    await chat.retire();
    await open();
    expect(new Set(seen.map(({ body }) => body["holderHash"]).filter((hash) => hash !== undefined)).size).toBe(2);
    expect(JSON.stringify([chat, Object.values(chat)])).not.toContain(secretOf());
  });
});

describe("W10.27 an opening whose answer is lost", () => {
  test("W10.27 is asked for again under the same hash", async () => {
    const unknown = { status: 503, body: { code: "unavailable", error: "away", next: "wait", outcome: "unknown" } };
    script = ["cut", unknown, OPENED];
    expect(await open()).toMatchObject(session);
    expect(seen).toHaveLength(3);
    expect(new Set(seen.map(({ body }) => body["holderHash"])).size).toBe(1);
  });

  test("W10.31 is told as unknown when it stays so, and a refusal that says otherwise is not asked for again", async () => {
    script = ["cut", "cut", "cut"];
    expect(await failure(open())).toMatchObject({ code: ErrorCode.Unavailable, outcome: Outcome.Unknown });
    expect(seen).toHaveLength(3);
    seen.length = 0;
    script = [{ status: 503, body: { code: "unavailable", error: "no plane", next: "wait", outcome: "not-executed" } }];
    expect(await failure(open())).toMatchObject({ code: ErrorCode.Unavailable, outcome: Outcome.NotExecuted });
    expect(seen).toHaveLength(1);
    script = [{ status: 403, body: { code: "permission-denied", error: "moved", next: "x", outcome: "executed" } }];
    expect(await failure(open())).toMatchObject({ code: ErrorCode.PermissionDenied, outcome: Outcome.Executed });
  });

  test("ends with its caller's patience", async () => {
    script = Array.from({ length: 9 }, (): Answer => "cut");
    const stop = new AbortController();
    const opening = failure(open({ signal: stop.signal }));
    await expect.poll(() => seen.length).toBe(1);
    stop.abort();
    expect(await opening).toMatchObject({ code: ErrorCode.Unavailable });
    expect(seen.length).toBeLessThanOrEqual(2);
  });
});

describe("what is not believed", () => {
  test.each([
    ["another owner", { owner: `u_${"z".repeat(26)}` }],
    ["another actor", { actor: `chat_${"z".repeat(26)}` }],
    ["another lifecycle", { lifecycleUid: "z".repeat(26) }],
  ])("a bearer, or an end, of %s", async (_, over) => {
    script = [
      OPENED,
      { status: 200, body: { ...BEARER.body, ...over } },
      { status: 200, body: { ...RETIRED.body, ...over } },
    ];
    const chat = await open();
    expect(await failure(chat.credentials.fetch(AbortSignal.timeout(5000)))).toMatchObject({
      code: ErrorCode.Internal,
    });
    expect(await failure(chat.retire())).toMatchObject({ code: ErrorCode.Internal });
  });

  test("no error repeats a token, a secret or a capability, also where the service does, and where the source of tokens fails", async () => {
    script = [OPENED];
    const chat = await open();
    script = [RETIRED];
    await chat.retire();
    const secret = secretOf();
    const all = `${ID_TOKEN} ${secret} ${"c".repeat(43)}`;
    script = [
      { status: 401, body: { code: "unauthenticated", error: `bad ${all}`, next: all, outcome: "not-executed" } },
    ];
    const refused = await failure(chat.retire());
    const failed = await failure(open({ idToken: () => Promise.reject(new Error(`at ${ID_TOKEN}`)) }));
    for (const error of [refused, failed]) {
      const text = `${error.message} ${error.next} ${error.stack} ${String(error.cause)}`;
      for (const hidden of [ID_TOKEN, secret, "c".repeat(43)]) expect(text).not.toContain(hidden);
    }
  });
});
