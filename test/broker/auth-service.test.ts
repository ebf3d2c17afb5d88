/**
 * The auth service as a process: people come in through it, its operator says who may, and a kill at any
 * time leaves it able to go on.
 */
import { type NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { ActorAnswer, ActorListAnswer, ActorRevokeAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { DevToken, type ExchangeAnswer, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { NatkeyRow, PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { CredentialRow } from "../../shared/protocol/ledger/rows.ts";
import { connect as connectAs, openChatSession } from "../../shared/client/index.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const { bucket } = spaceNames("main");

async function rowOf(nc: NatsConnection, of: string, key: string): Promise<unknown> {
  const entry = await leaderLast(nc, bucketStream(of), kvKey(of, key));
  return entry === undefined ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

const say = (space: TestSpace, command: string, args: unknown) =>
  space.call(command, args, { endpoint: EndpointName.Auth });

/** A refusal of the exchange, as it came. */
async function refused(auth: AuthService, actor: string): Promise<{ status: number; body: Record<string, unknown> }> {
  const thrown: unknown = await auth.signIn(actor).then(
    () => new Error("it was not refused"),
    (error: unknown) => error,
  );
  const { status, body } = thrown as { status?: number; body?: Record<string, unknown> };
  if (status === undefined || body === undefined) throw thrown;
  return { status, body };
}

/** Signs in until it works: for a service that is coming up. */
const comesIn = async (auth: AuthService, actor: string): Promise<ExchangeAnswer> => {
  const found = await eventually(
    () => auth.signIn(actor).catch(() => undefined),
    (answer) => answer !== undefined,
    20_000,
  );
  if (found === undefined) throw new Error(`${actor} never came in:\n${auth.log()}`);
  return found;
};

describe("one process, both roles", () => {
  let space: TestSpace;
  let auth: AuthService;
  let store: NatsConnection;
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    auth = await startAuthService(space);
    store = await space.store();
    await comesIn(auth, "first");
  }, 60_000);
  afterAll(async () => {
    await auth.stop();
    await space.stop();
  });

  test("W10.03 W10.06 W131L.01 W131L.11 who signs in connects, and each credential has its row", async () => {
    const answer = await auth.signIn("alice");
    const connection = await auth.connect(answer, "a".repeat(26));
    const { owner, lifecycleUid } = answer;
    const natkeys = (await rowPage(store, bucket.auth, { filter: "natkey.*", limit: 1000, via: "leader" })).rows;
    const mine = natkeys
      .map(({ data }) => NatkeyRow.parse(JSON.parse(new TextDecoder().decode(data))))
      .filter(({ actor }) => actor === "alice");
    expect(mine).toEqual([
      expect.objectContaining({ owner, lifecycleUid, connId: `${lifecycleUid}_${"a".repeat(26)}` }),
    ]);
    const [row] = mine;
    expect(
      CredentialRow.parse(await rowOf(store, bucket.auth, `cred.${lifecycleUid}.${row?.credentialId ?? ""}`)),
    ).toMatchObject({ state: "active", holderPrincipal: `${owner}.alice`, sourceChain: ["root"] });
    await connection.close();
  });

  test("W10.08 a revoked actor's bearer connects no more, who is connected is ended, and the exchange says why", async () => {
    const answer = await auth.signIn("mallory");
    const live = await auth.connect(answer, "b".repeat(26));
    const { uid, opId, connections, remains } = ActorRevokeAnswer.parse(
      await say(space, "actor-revoke", { owner: answer.owner, actor: "mallory" }),
    );
    expect(uid).toBe(answer.lifecycleUid);
    expect(opId).toBe(`retire-${uid}`);
    expect(await failure(auth.connect(answer, "c".repeat(26)))).toMatchObject({ code: "unauthenticated" });
    const { status, body } = await refused(auth, "mallory");
    expect([status, body["code"]]).toEqual([403, "permission-denied"]);
    // Who was connected has been ended, with proof.
    expect(connections).toEqual({ state: "none" });
    expect(remains).toBeUndefined();
    await expect.poll(() => live.isUp(), { timeout: 10_000 }).toBe(false);
    await live.close();
    await expect.poll(() => auth.log(), { timeout: 10_000 }).toContain("revoked");
  });

  test("an operator grants, narrows and lists; nobody else may ask", async () => {
    const { owner } = await auth.signIn("alice");
    const granted = ActorAnswer.parse(
      await say(space, "actor-grant", { owner, actor: "bob", allowSubscribe: ["team.>"], allowPublish: ["team.a"] }),
    );
    expect(granted.actor).toMatchObject({ actor: "bob", name: "bob", kind: "interactive", allowSubscribe: ["team.>"] });
    const narrowed = ActorAnswer.parse(
      await say(space, "actor-narrow", { owner, actor: "bob", allowSubscribe: ["team.b"], allowPublish: [] }),
    );
    expect(narrowed.actor).toMatchObject({ allowSubscribe: ["team.b"], allowPublish: [] });
    const list = ActorListAnswer.parse(await say(space, "actor-list", { owner }));
    expect(list.actors.map(({ actor }) => actor)).toContain("bob");
    expect(list.unreadable).toEqual([]);
    const wider = say(space, "actor-narrow", { owner, actor: "bob", allowSubscribe: [">"] });
    expect(await failure(wider)).toMatchObject({ code: "failed-precondition" });
  });

  test("an owner may be named by issuer and subject, and comes to the same token as signing in", async () => {
    const args = { owner: { issuer: "https://issuer.test", subject: "s" }, actor: "named" };
    const first = ActorAnswer.parse(await say(space, "actor-grant", args)).actor;
    const second = ActorAnswer.parse(await say(space, "actor-grant", args)).actor;
    expect(first.owner).toMatch(/^u_[a-z2-7]{26}$/);
    expect(second).toMatchObject({ owner: first.owner, lifecycleUid: first.lifecycleUid });
  });

  test("an oversized grant is refused before any row, with the entry named", async () => {
    const { owner } = await auth.signIn("alice");
    const long = Array.from({ length: 400 }, (_, at) => `${"x".repeat(60)}${at}`);
    const error = await failure(say(space, "actor-grant", { owner, actor: "big", allowSubscribe: long }));
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    expect(await rowOf(store, bucket.auth, `actor.${owner}.big`)).toBeUndefined();
  });

  test("W131.02 kill -9: the same process files take the plane again, and everybody comes in", async () => {
    const before = await auth.signIn("alice");
    const { generation } = PlaneRow.parse(await rowOf(store, bucket.auth, "plane"));
    await auth.kill();
    await auth.restart();
    const known = await comesIn(auth, "alice");
    expect(known).toMatchObject({ owner: before.owner, lifecycleUid: before.lifecycleUid });
    // A bearer of before is as good as ever: the ledger says so, not the process.
    const old = await auth.connect(before, "d".repeat(26));
    await old.close();
    await comesIn(auth, "after_the_kill");
    const plane = PlaneRow.parse(await rowOf(store, bucket.auth, "plane"));
    expect(plane).toMatchObject({ state: "held" });
    expect(plane.generation).toBeGreaterThan(generation);
  }, 60_000);

  test("kill -9 while many sign in: each comes in afterwards, as one incarnation each", async () => {
    const actors = Array.from({ length: 8 }, (_, at) => `storm_${at}`);
    for (const wait of [5, 20, 60]) {
      const asked = Promise.allSettled(actors.map((actor) => auth.signIn(actor)));
      await new Promise((resolve) => setTimeout(resolve, wait));
      await auth.kill();
      await asked;
      await auth.restart();
    }
    for (const actor of actors) {
      const { owner, lifecycleUid } = await comesIn(auth, actor);
      const head = await rowOf(store, bucket.records, `lifecycle.${owner}.${actor}`);
      expect(head).toMatchObject({ lifecycleUid, state: "active" });
    }
  }, 60_000);

  test("a broker that went away and came back is used again, and the plane is held again", async () => {
    await space.broker.kill();
    await space.broker.restart();
    await comesIn(auth, "after_the_broker");
    const plane = PlaneRow.parse(await rowOf(await space.store(), bucket.auth, "plane"));
    expect(plane.state).toBe("held");
  }, 60_000);

  test("nothing that it printed is a bearer, a token, a capability or a seed", async () => {
    const { idToken } = DevToken.parse((await auth.post(ExchangePath.DevToken, {})).body);
    const { bearer } = await comesIn(auth, "alice");
    const log = auth.log();
    for (const secret of [idToken, bearer, auth.face().capability]) {
      expect(log.includes(secret) || log.includes(secret.slice(-40))).toBe(false);
    }
    expect(/\bS[AUOX][A-Z2-7]{50,}/.test(log)).toBe(false);
    expect(/eyJ[A-Za-z0-9_-]{20,}\./.test(log)).toBe(false);
  });
});

describe("two processes of one space (H45, H46)", () => {
  let space: TestSpace;
  let first: AuthService;
  let second: AuthService;
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    first = await startAuthService(space, { name: "first" });
    await comesIn(first, "alice");
    second = await startAuthService(space, { name: "second" });
  }, 60_000);
  afterAll(async () => {
    await second.stop();
    await first.stop();
    await space.stop();
  });

  test("the second waits quietly: who is enrolled comes in by it, and it asks the first to begin a newcomer", async () => {
    expect(await comesIn(second, "alice")).toMatchObject({ actor: "alice" });
    await expect
      .poll(() => second.log().match(/another process holds the authority plane/g), { timeout: 10_000 })
      .toHaveLength(1);
    const came = await second.signIn("newcomer");
    expect(came).toMatchObject({ actor: "newcomer" });
    expect(await first.signIn("newcomer")).toMatchObject({ lifecycleUid: came.lifecycleUid });
  }, 30_000);

  test("when the first is killed the second proves it gone and takes the plane over", async () => {
    await first.kill();
    expect(await comesIn(second, "another")).toMatchObject({ actor: "another" });
    // It lets newcomers begin a moment before it serves its operator.
    await expect.poll(() => second.log(), { timeout: 20_000 }).toContain("this process holds the authority plane");
    const list = ActorListAnswer.parse(await say(space, "actor-list", {}));
    expect(list.actors.map(({ actor }) => actor)).toContain("another");
  }, 30_000);
});

describe("edges beside a plane (decision 31)", () => {
  let space: TestSpace;
  let plane: AuthService;
  let edges: readonly AuthService[];
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    plane = await startAuthService(space, { name: "plane", waitMs: 60_000 });
    await comesIn(plane, "alice");
    edges = await Promise.all(
      ["one", "two"].map((name) =>
        startAuthService(space, { name, waitMs: 60_000, env: { COTAL_AUTH_ROLES: "edge" } }),
      ),
    );
  }, 180_000);
  afterAll(async () => {
    for (const one of [...edges, plane]) await one.stop();
    await space.stop();
  });

  test("newcomers who come to every edge at once are begun once each, and connect", async () => {
    const actors = Array.from({ length: 6 }, (_, at) => `many_${at}`);
    const all = await Promise.all(actors.flatMap((actor) => [...edges, ...edges].map((edge) => edge.signIn(actor))));
    for (const actor of actors) {
      const uids = new Set(all.filter((answer) => answer.actor === actor).map(({ lifecycleUid }) => lifecycleUid));
      expect(uids.size).toBe(1);
    }
    const [answer] = all;
    if (answer === undefined) throw new Error("nobody came in");
    const connection = await plane.connect(answer);
    await connection.close();
  }, 30_000);

  test("a name that nobody chooses, and a managed agent that is none, begin by no edge either", async () => {
    const [edge] = edges;
    if (edge === undefined) throw new Error("there is no edge");
    expect((await refused(edge, "chat_mine")).status).toBe(403);
    expect(await failure(say(space, "enrol", { by: "agent", owner: "u_x", actor: "mine" }))).toMatchObject({
      code: "permission-denied",
    });
  });

  test("a chat session is opened and retired by an edge", async () => {
    const [edge] = edges;
    if (edge === undefined) throw new Error("there is no edge");
    await edge.signIn("cli");
    const idToken = async (): Promise<string> =>
      DevToken.parse((await edge.post(ExchangePath.DevToken, {})).body).idToken;
    const chat = await openChatSession({ exchange: () => edge.face(), space: "main", idToken });
    const bearer = await connectAs({ servers: [space.url], credentials: chat.credentials });
    expect(bearer.me.id).toBe(`${chat.owner}.${chat.actor}`);
    await bearer.close();
    await chat.retire();
  }, 30_000);

  test("without a plane newcomers are told to come again, and who is enrolled comes in", async () => {
    await plane.kill();
    for (const edge of edges) {
      expect(await edge.signIn("alice")).toMatchObject({ actor: "alice" });
      const { status, body } = await refused(edge, "late");
      expect([status, body["code"]]).toEqual([503, "unavailable"]);
    }
    await plane.restart();
    for (const edge of edges) await comesIn(edge, "late");
  }, 60_000);
});

describe("a store of another shape", () => {
  test("W131L.13 the auth bucket that answers direct reads is not trusted", async () => {
    const space = await startSpace({ auth: "user" });
    const store = await space.store();
    const stream = bucketStream(bucket.auth);
    const { config } = (await store.request(jsApi.streamInfo(stream))).json<{ config: object }>();
    await store.request(jsApi.streamUpdate(stream), JSON.stringify({ ...config, allow_direct: true }));
    const started = startAuthService(space, { fails: "allow_direct" });
    const error: unknown = await started.then(
      async (auth) => {
        await auth.stop();
        return new Error("it trusted the store");
      },
      (thrown: unknown) => thrown,
    );
    expect(String(error)).toContain("allow_direct");
    expect(await rowOf(store, bucket.auth, "plane")).toBeUndefined();
    await space.stop();
  }, 60_000);
});
