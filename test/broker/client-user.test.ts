/** Sessions of people who sign in: a real exchange, a real callout, and what either of them may refuse. */
import { type TestContext, describe, expect, test, vi } from "vitest";
import { type Session, type SessionEvent, type SessionOptions, connect } from "../../shared/client/index.ts";
import { type CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { failure } from "../support/refusal.ts";
import { type SignInWorld, signInWorld } from "../support/sign-in-world.ts";
import { ID_TOKEN, OWNER } from "../support/small-exchange.ts";
import { until } from "../support/until.ts";
import { sleep } from "../support/vitals.ts";

vi.setConfig({ testTimeout: 90_000 });

type Opened = { readonly session: Session; readonly told: SessionEvent[]; readonly count: (type: string) => number };

type World = SignInWorld & {
  /** How "alice" connects here, unless told otherwise. */
  readonly optionsOf: (more: Partial<SessionOptions>, told: SessionEvent[]) => SessionOptions;
  /** A session, closed with the test. */
  readonly open: (more?: Partial<SessionOptions>) => Promise<Opened>;
  readonly refused: (more?: Partial<SessionOptions>) => Promise<CotalError>;
  readonly userWith: (idToken: () => Promise<string>) => Partial<SessionOptions>;
};

async function world(context: Pick<TestContext, "onTestFinished">): Promise<World> {
  const signIn = await signInWorld(context);
  const { url, capability } = signIn.exchange;
  const userWith: World["userWith"] = (idToken) => ({
    credentials: { kind: "user", space: "main", actor: "alice", exchange: { url, capability }, idToken },
  });
  const optionsOf: World["optionsOf"] = (more, told) => ({
    servers: [signIn.broker.url],
    presence: false,
    onEvent: (event) => told.push(event),
    credentials: { kind: "user", space: "main", actor: "alice", exchange: { url, capability }, idToken: proof },
    ...more,
  });
  const open: World["open"] = async (more = {}) => {
    const told: SessionEvent[] = [];
    const session = await connect(optionsOf(more, told));
    context.onTestFinished(() => session.close());
    return { session, told, count: (type) => told.filter((event) => event.type === type).length };
  };
  const refused: World["refused"] = (more = {}) => failure(connect(optionsOf(more, [])));
  return { ...signIn, optionsOf, open, refused, userWith };
}
const proof = (): Promise<string> => Promise.resolve(ID_TOKEN);
const limited = (seconds: number) => ({
  status: 429,
  headers: { "retry-after": String(seconds) },
  body: { code: "RATE_LIMITED", retryAfterSeconds: seconds, limit: "actor", error: "too many" },
});

describe.concurrent("signing in", () => {
  test("W2.06 W10.02: who one is comes from the exchange; the nonce of the inbox is the client's, its uid the ledger's", async (context) => {
    const { exchange, open } = await world(context);
    const { session } = await open();
    expect(session.me).toMatchObject({ id: `${OWNER}.alice`, name: "The alice", mode: "auth", space: "main" });
    const [seen] = exchange.seen;
    expect(session.me.inboxPrefix).toBe(`_INBOX_${seen?.name}`);
    expect(seen?.name.startsWith(`${session.me.uid}_`)).toBe(true);
    expect(JSON.stringify(session.me)).not.toContain(seen?.token);
  });

  test("two sessions of one actor share the lifecycle and no inbox", async (context) => {
    const { open } = await world(context);
    const [one, other] = [await open(), await open()];
    expect(one.session.me.uid).toBe(other.session.me.uid);
    expect(one.session.me.inboxPrefix).not.toBe(other.session.me.inboxPrefix);
  });

  test("what the exchange refuses is the error, and nothing is dialled; the token is in no text", async (context) => {
    const { exchange, refused, userWith } = await world(context);
    const secret = "b3RoZXI.dG9rZW4.eA";
    const error = await refused(userWith(() => Promise.resolve(secret)));
    expect(error).toMatchObject({ code: ErrorCode.Unauthenticated, outcome: "not-executed", next: "cotal login" });
    expect(`${error.message} ${error.next} ${error.stack}`).not.toContain(secret);
    expect(exchange.seen).toEqual([]);
  });

  test("a source of tokens that throws is asked again; one that never answers ends with the caller's patience", async (context) => {
    const { open, refused, userWith } = await world(context);
    let asked = 0;
    const flaky = (): Promise<string> => {
      asked += 1;
      return asked === 1 ? Promise.reject(new Error(ID_TOKEN)) : Promise.resolve(ID_TOKEN);
    };
    const { told } = await open(userWith(flaky));
    expect(asked).toBe(2);
    expect(JSON.stringify(told)).not.toContain(ID_TOKEN);
    let hung = 0;
    const never = (): Promise<string> => {
      hung += 1;
      return new Promise(() => undefined);
    };
    const stop = AbortSignal.timeout(500);
    expect(await refused({ ...userWith(never), signal: stop })).toMatchObject({ code: ErrorCode.Cancelled });
    expect(hung).toBe(1);
  });

  test("a space, a principal or a name that does not fit fails before anything is dialled", async (context) => {
    const { exchange, refused } = await world(context);
    expect(await refused({ space: "lab" })).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expect(await refused({ principal: `${OWNER}.bob` })).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expect(await refused({ name: "n".repeat(129) })).toMatchObject({ code: ErrorCode.BadRequest });
    expect(exchange.seen).toEqual([]);
  });
});

test("W5.07 what a space can't give back is refused before it is sent, though the broker would take it", async (context) => {
  const { open } = await world(context);
  const { session } = await open();
  expect(await failure(session.send("general", "x".repeat(262_144)))).toMatchObject({
    code: ErrorCode.BadRequest,
    outcome: "not-executed",
    next: expect.stringContaining("artifact") as string,
  });
});

describe.concurrent("a bearer that ends", () => {
  test("W2.04: over two ends the session goes on: another nkey each time, the same principal and inbox, no refusal", async (context) => {
    const { exchange, open } = await world(context);
    exchange.life = 8;
    const { session, told, count } = await open();
    const before = { ...session.me };
    await until("the second end is over", () => count("up") === 2, 40_000);
    expect(session.me).toEqual(before);
    expect(told.filter(({ type }) => type === "down")).toMatchObject([{ expired: true }, { expired: true }]);
    expect([count("refused"), count("closed")]).toEqual([0, 0]);
    const keys = exchange.seen.map(({ userKey }) => userKey);
    expect(new Set(keys).size).toBe(keys.length);
    expect(new Set(exchange.seen.map(({ name }) => name)).size).toBe(1);
    expect(exchange.seen).toHaveLength(3);
    expect(exchange.asked.length).toBeLessThanOrEqual(6);
  });

  test("the auth service is away over the end: nothing is presented, nothing is dialled, and it comes back by itself", async (context) => {
    const { broker, exchange, respond, away, open } = await world(context);
    exchange.life = 8;
    const { session, count } = await open();
    await exchange.stop();
    await away();
    await until("it is down", () => count("down") === 1, 20_000);
    const log = broker.log().length;
    expect(exchange.seen).toHaveLength(1);
    await sleep(6000);
    // Not even a login without a credential reached the broker.
    expect(broker.log().slice(log)).not.toMatch(/authentication error|Authorization/i);
    await respond();
    await exchange.start();
    await until("it is up", () => count("up") === 1, 40_000);
    expect(exchange.seen).toHaveLength(2);
    expect(count("unrenewed") + count("retrying")).toBeGreaterThan(0);
    session.stats();
  });

  test("W10.08: a revoked actor ends in a named state at its bearer's end, and asks nothing any more", async (context) => {
    const { exchange, open } = await world(context);
    exchange.life = 8;
    const { session } = await open();
    exchange.revoked.add("alice");
    expect(await session.closed).toMatchObject({
      code: ErrorCode.PermissionDenied,
      message: expect.stringContaining("the actor was revoked") as string,
      next: "ask for it",
    });
    const [asked, seen] = [exchange.asked.length, exchange.seen.length];
    await sleep(3000);
    expect([exchange.asked.length, exchange.seen.length]).toEqual([asked, seen]);
  });

  test("another lifecycle under the same name ends the session, which is the first one's", async (context) => {
    const { exchange, open } = await world(context);
    exchange.life = 8;
    const { session } = await open();
    exchange.renew("alice");
    expect(await session.closed).toMatchObject({ code: ErrorCode.FailedPrecondition, next: "open a new session" });
  });

  test("a session that is closed while it waits for a bearer leaves nothing behind", async (context) => {
    const { exchange, open } = await world(context);
    exchange.life = 6;
    const { session, count } = await open();
    exchange.refusal = { status: 503, body: { code: "unavailable", error: "away", next: "wait" } };
    await until("it is down", () => count("down") === 1, 20_000);
    await session.close();
    expect(await session.closed).toBeUndefined();
    const asked = exchange.asked.length;
    await sleep(3000);
    expect([exchange.asked.length, exchange.seen.length]).toEqual([asked, 1]);
  });
});

describe.concurrent("a refusal of the callout", () => {
  test("the reason comes from the exchange: the broker's own word has none", async (context) => {
    const { broker, exchange, respond, open } = await world(context);
    const { session } = await open();
    exchange.revoked.add("alice");
    await broker.kill();
    await broker.restart();
    await respond();
    expect(await session.closed).toMatchObject({
      code: ErrorCode.PermissionDenied,
      message: expect.stringContaining("the actor was revoked") as string,
    });
  });

  test("the exchange sees nothing wrong: a few dials at a growing pace, then an error that says where to look", async (context) => {
    const { exchange, optionsOf } = await world(context);
    exchange.denial = "no room";
    const told: SessionEvent[] = [];
    const error = await failure(connect(optionsOf({}, told)));
    expect(error).toMatchObject({
      code: ErrorCode.Unauthenticated,
      next: expect.stringContaining("cotal doctor") as string,
    });
    expect(exchange.seen).toHaveLength(3);
    expect(exchange.asked).toHaveLength(3);
    expect(new Set(exchange.seen.map(({ token }) => token)).size).toBe(3);
  });

  test("a session that stood is not ended by it, asks before each dial, and is back when it is over", async (context) => {
    const { broker, exchange, respond, open } = await world(context);
    const { count } = await open();
    exchange.denial = "no room";
    const [asked, seen] = [exchange.asked.length, exchange.seen.length];
    await broker.kill();
    await broker.restart();
    await respond();
    await sleep(6000);
    const dials = exchange.seen.length - seen;
    expect(dials).toBeGreaterThanOrEqual(2);
    expect(dials).toBeLessThanOrEqual(6);
    expect(exchange.asked.length - asked).toBeGreaterThanOrEqual(dials - 1);
    exchange.denial = undefined;
    await until("it is up", () => count("up") === 1, 40_000);
  });

  test("a bounded policy ends it with that cause", async (context) => {
    const { broker, exchange, respond, open } = await world(context);
    const { session } = await open({ reconnect: { kind: "bounded", attempts: 50 } });
    exchange.denial = "no room";
    await broker.kill();
    await broker.restart();
    await respond();
    expect(await session.closed).toMatchObject({ code: ErrorCode.Unauthenticated });
  });

  test("a broker that was away is met with the bearer at hand: the exchange is not asked again", async (context) => {
    const { broker, exchange, respond, open } = await world(context);
    const { count } = await open();
    await broker.kill();
    await broker.restart();
    await respond();
    await until("it is up", () => count("up") === 1, 40_000);
    expect(exchange.asked).toHaveLength(1);
  });
});

describe.concurrent("W10.24: a 429 of the exchange", () => {
  test("before the first bearer: nothing is asked or dialled for its seconds, and it is told with them", async (context) => {
    const { exchange, open } = await world(context);
    exchange.refusal = limited(3);
    const began = Date.now();
    setTimeout(() => (exchange.refusal = undefined), 1000);
    const { told } = await open();
    expect(told[0]).toMatchObject({ type: "retrying", error: { code: ErrorCode.ResourceExhausted } });
    expect(exchange.asked).toHaveLength(2);
    expect((exchange.asked[1] ?? 0) - began).toBeGreaterThanOrEqual(3000);
    expect((exchange.seen[0]?.at ?? 0) - began).toBeGreaterThanOrEqual(3000);
  });

  test("after a refused login: the next dial keeps to it, though the bearer would live on", async (context) => {
    const { broker, exchange, respond, open } = await world(context);
    const { count } = await open();
    exchange.denial = "RATE_LIMITED retry-after 4s";
    exchange.refusal = limited(4);
    await broker.kill();
    await broker.restart();
    await respond();
    await until("the refusal is met", () => exchange.asked.length === 2, 20_000);
    const hit = exchange.asked[1] ?? 0;
    exchange.denial = undefined;
    exchange.refusal = undefined;
    const seen = exchange.seen.length;
    await until("it is up", () => count("up") === 1, 40_000);
    expect(exchange.asked).toHaveLength(3);
    expect((exchange.asked[2] ?? 0) - hit).toBeGreaterThanOrEqual(3990);
    expect((exchange.seen[seen]?.at ?? 0) - hit).toBeGreaterThanOrEqual(3990);
  });
});
