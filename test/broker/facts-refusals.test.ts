/**
 * Facts about how the broker refuses, expires and revokes, and what a client then sees: connection,
 * SDK and daemons are built on these.
 */
import { connect as dial } from "node:net";
import {
  AuthorizationError,
  ConnectionError,
  type NatsConnection,
  PermissionViolationError,
  RequestError,
  type Status,
  TimeoutError,
  UserAuthenticationExpiredError,
  connect,
} from "@nats-io/transport-node";
import { encodeAuthorizationResponse, createAccount, type KeyPair, decode, encodeUser, fromPublic } from "@nats-io/jwt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BareBroker, startBareBroker } from "../support/bare-accounts.ts";
import { type BareOperator, type BareUser, NO_LIMITS, startBareOperator } from "../support/bare-operator.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { until } from "../support/until.ts";

/** Collects the status events of a connection. */
function statuses(nc: NatsConnection): Status[] {
  const seen: Status[] = [];
  const watch = async (): Promise<void> => {
    for await (const status of nc.status()) seen.push(status);
  };
  void watch();
  return seen;
}
const errors = (seen: readonly Status[]): Error[] =>
  seen.flatMap((status) => (status.type === "error" ? [status.error] : []));

describe("refused operations", () => {
  let broker: BareBroker;
  let nc: NatsConnection;
  let seen: Status[];

  beforeAll(async () => {
    broker = await startBareBroker({
      A: { users: { narrow: { publish: { allow: ["may"] }, subscribe: { allow: ["may", "_INBOX.>", "w q"] } } } },
    });
    nc = await broker.login("narrow");
    seen = statuses(nc);
  });
  afterAll(() => broker.end());

  test("a refused subscription: the iterator throws, `closed` resolves with it, a status carries it", async () => {
    const subscription = nc.subscribe("not", { queue: "g" });
    const iterated = (async () => {
      for await (const _ of subscription) throw new Error("nothing can come");
    })();
    await expect(iterated).rejects.toThrow(PermissionViolationError);
    expect(await subscription.closed).toMatchObject({ operation: "subscription", subject: "not", queue: "g" });
    await until("the status came", () => errors(seen).length > 0);
    expect(errors(seen)[0]).toMatchObject({ operation: "subscription", subject: "not", queue: "g" });
  });

  test("a refused publish is a status event only, and a request rejects at once with that cause", async () => {
    nc.publish("not.a.publish");
    await nc.flush();
    await until("the status came", () =>
      errors(seen).some((error) => error instanceof PermissionViolationError && error.subject === "not.a.publish"),
    );
    const refusal = await nc.request("not.a.request", "", { timeout: 20_000 }).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(RequestError);
    expect((refusal as RequestError).cause).toBeInstanceOf(PermissionViolationError);
  });

  test("the connection survives refusals", async () => {
    await nc.flush();
    expect(nc.isClosed()).toBe(false);
  });
});

describe("user JWTs", () => {
  let broker: BareOperator;
  beforeAll(async () => {
    broker = await startBareOperator(() => Promise.resolve({ A: { limits: NO_LIMITS } }), ["A"]);
  });
  afterAll(() => broker.end());
  const soon = (seconds: number): number => Math.floor(Date.now() / 1000) + seconds;

  test("an expired one: status, disconnect, and a reconnect that asks the authenticator again", async () => {
    let current: BareUser = await broker.user("A", {}, soon(2));
    let asked = 0;
    const nc = await broker.login(
      () => {
        asked += 1;
        return current;
      },
      { reconnect: true, reconnectTimeWait: 50 },
    );
    const seen = statuses(nc);
    current = await broker.user("A");
    const before = asked;
    await until("it is back", () => seen.some(({ type }) => type === "reconnect"));
    expect(asked).toBeGreaterThan(before);
    expect(errors(seen).some((error) => error instanceof UserAuthenticationExpiredError)).toBe(true);
    expect(seen.map(({ type }) => type)).toContain("disconnect");
  });

  test("an expired one that is presented again ends the client for good, with an error that need not say so", async () => {
    const nc = await broker.login(await broker.user("A", {}, soon(2)), { reconnect: true, reconnectTimeWait: 50 });
    const seen = statuses(nc);
    const cause = await nc.closed();
    // Refused, expired, or let in for a moment and then cut: the last error differs, the first does not.
    expect(cause).toBeInstanceOf(Error);
    expect(errors(seen)[0]).toBeInstanceOf(UserAuthenticationExpiredError);
    expect(
      [AuthorizationError, UserAuthenticationExpiredError, ConnectionError].some((kind) => cause instanceof kind),
    ).toBe(true);
  });

  test("a revocation closes a live connection, names itself, and refuses the next login", async () => {
    const user = await broker.user("A");
    const other = await broker.login(await broker.user("A"));
    const nc = await broker.login(user);
    const seen = statuses(nc);
    expect(await broker.push("A", { limits: NO_LIMITS, revocations: { [user.publicKey]: soon(1) } })).toBe(200);
    const cause = await nc.closed();
    expect(`${String(cause)} ${errors(seen).map(String).join()}`).toContain("User Authentication Revoked");
    await expect(broker.login(user)).rejects.toThrow(AuthorizationError);
    await other.flush();
    expect(other.isClosed()).toBe(false);
  });

  test("a revocation holds for JWTs issued up to its time: the same key with a later JWT connects", async () => {
    const user = await broker.user("A");
    await broker.push("A", { limits: NO_LIMITS, revocations: { [user.publicKey]: soon(-60) } });
    const nc = await broker.login(user);
    expect(nc.isClosed()).toBe(false);
  });

  test("limits in a JWT are enforced: subscriptions and payload", async () => {
    const nc = await broker.login(await broker.user("A", { subs: 2, payload: 10 }));
    const seen = statuses(nc);
    for (const subject of ["a", "b", "c"]) nc.subscribe(subject, { callback: () => undefined });
    await nc.flush();
    await until("the third is refused", () =>
      errors(seen).some((error) => error.message.toLowerCase().includes("maximum subscriptions")),
    );
    const second = await broker.login(await broker.user("A", { subs: 10, payload: 10 }));
    // The limit comes in a second INFO, a moment after the login.
    await until("the limit is told", () => second.info?.max_payload === 10);
    const info = second.info ?? { max_payload: 0 };
    // The client would refuse it by itself: let the broker do it.
    info.max_payload = 1000;
    const told = statuses(second);
    second.publish("a", "x".repeat(11));
    await second.closed();
    expect(
      errors(told)
        .map(({ message }) => message)
        .join(),
    ).toMatch(/payload/i);
  });

  test("$SYS.> lets any user of an account read the connections of it, other users' JWTs included", async () => {
    const victim = await broker.user("A", { pub: { allow: ["secret.grant"] } });
    await broker.login(victim);
    const nosy = await broker.login(
      await broker.user("A", { pub: { allow: ["$SYS.>"] }, sub: { allow: ["_INBOX.>"] } }),
    );
    const answer = await nosy.request("$SYS.REQ.ACCOUNT.PING.CONNZ", '{"auth":true}', { timeout: 5000 });
    expect(answer.string()).toContain(victim.jwt);
    const denied = await broker.login(await broker.user("A", { pub: { allow: ["a"] }, sub: { allow: ["_INBOX.>"] } }));
    await expect(denied.request("$SYS.REQ.ACCOUNT.PING.CONNZ", "", { timeout: 5000 })).rejects.toThrow(RequestError);
  });
});

describe("login", () => {
  let broker: TestBroker;
  beforeAll(async () => {
    broker = await startBroker({ lines: ['authorization { user: "a", password: "b", timeout: 1 }'] });
  });
  afterAll(() => broker.stop());

  test("a client that says nothing is cut after the auth timeout", async () => {
    const text = await new Promise<string>((resolve, reject) => {
      const socket = dial(broker.port, "127.0.0.1");
      let said = "";
      socket.on("data", (chunk: Buffer) => (said += chunk.toString()));
      socket.once("close", () => resolve(said));
      socket.once("error", reject);
    });
    expect(text).toContain("Authentication Timeout");
  });

  test("a CONNECT longer than max_control_line is dropped, and the client is not told that its line was too long", async () => {
    const user = "u".repeat(70_000);
    const failure = await connect({ servers: broker.url, user, pass: "x", timeout: 3000, reconnect: false }).then(
      () => undefined,
      (error: unknown) => String(error),
    );
    expect(failure).not.toBe(undefined);
    expect(failure).not.toMatch(/authorization/i);
    await until("the log says why", () => /maximum control line/i.test(broker.log()));
    expect(broker.log()).toMatch(/maximum control line/i);
  });
});

describe("a callout", () => {
  let broker: BareBroker;
  let issuer: KeyPair;
  let service: NatsConnection;
  let answer: "deny" | "silent" | "plain" = "deny";

  beforeAll(async () => {
    issuer = createAccount();
    broker = await startBareBroker(
      { AUTH: { users: { service: {} } }, APP: { users: {} } },
      {
        extra: {
          authorization: {
            timeout: 1,
            auth_callout: { issuer: issuer.getPublicKey(), account: "AUTH", auth_users: ["service"] },
          },
        },
      },
    );
    service = await broker.login("service");
    service.subscribe("$SYS.REQ.USER.AUTH", {
      callback: (_, message) => {
        void respond(message.data).then((jwt) => (jwt === undefined ? undefined : message.respond(jwt)));
      },
    });
    await service.flush();
  });
  afterAll(() => broker.end());

  async function respond(data: Uint8Array): Promise<string | undefined> {
    if (answer === "silent") return undefined;
    const request = decode<{ user_nkey: string; server_id: { id: string } }>(new TextDecoder().decode(data)).nats;
    const user = fromPublic(request.user_nkey ?? "");
    const server = fromPublic(request.server_id?.id ?? "");
    const grant =
      answer === "deny"
        ? { error: "the reason of the responder" }
        : { jwt: await encodeUser("u_x.a", user, issuer, { pub: { allow: ["may"] } }, { aud: "APP" }) };
    return encodeAuthorizationResponse(user, server, issuer, grant, {});
  }
  const login = () => connect({ servers: broker.url, user: "x", pass: "x", timeout: 3000, reconnect: false });

  test("a denial reaches the client as a bare Authorization Violation: the reason stays in the server's log", async () => {
    answer = "deny";
    const failure = await login().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(AuthorizationError);
    expect(String(failure)).not.toContain("the reason of the responder");
    await until("the log says why", () => broker.log().includes("the reason of the responder"));
    expect(broker.log()).toContain("the reason of the responder");
  });

  test("a responder that is silent: the server cuts after its auth timeout, and a connect timeout bounds the client", async () => {
    answer = "silent";
    await expect(
      connect({ servers: broker.url, user: "x", pass: "x", timeout: 500, reconnect: false }),
    ).rejects.toThrow(TimeoutError);
    await expect(login()).rejects.toThrow(Error);
  });

  test("a plaintext response of the right issuer is accepted, and its permissions hold", async () => {
    answer = "plain";
    const nc = await login();
    const seen = statuses(nc);
    for (const subject of ["may", "may.not"]) nc.publish(subject);
    await nc.flush();
    await until("one is refused", () => errors(seen).length > 0);
    await nc.close();
    expect(errors(seen)).toMatchObject([{ operation: "publish", subject: "may.not" }]);
  });

  test("a reload drops the live connections that a callout let in", async () => {
    answer = "plain";
    const nc = await login();
    process.kill(broker.pid(), "SIGHUP");
    await until("it is cut", () => nc.isClosed());
    expect(nc.isClosed()).toBe(true);
  });
});
