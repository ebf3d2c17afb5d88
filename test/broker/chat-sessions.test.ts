/**
 * Chat sessions against a real broker and a real auth service: opened, used, cut off with their parent,
 * retired, and found again after a kill.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { chatParts, planeParts } from "../../services/auth/plane-parts.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { openChat } from "../../services/auth/plane/chat/open.ts";
import type { ChatParts } from "../../services/auth/plane/chat/parts.ts";
import { ADMISSION_QUIET_MS, COMPACT_AFTER_MS, createChatSweep } from "../../services/auth/plane/chat/sweep.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { type Death, Died } from "../../shared/broker/write.ts";
import { type ChatSession, type Session, connect, openChatSession } from "../../shared/client/index.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import {
  ChatOpenAnswer,
  ChatRetireAnswer,
  ChatSessionPath,
} from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { DevToken, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { GateRow } from "../../shared/protocol/ledger/rows.ts";
import { ChatHolderRow, ChatOwnerRow, ChatSessionRow, chatKey } from "../../shared/protocol/ledger/chat-rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { hashOf } from "../support/chat-parts.ts";
import { eventually } from "../support/cli.ts";
import { OWNER, SIGN_IN } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeSource } from "../support/store-plane.ts";

const names = spaceNames("main");

async function rowOf(nc: NatsConnection, key: string, bucket: "auth" | "records" | "acl" = "auth"): Promise<unknown> {
  const place = names.bucket[bucket];
  const entry = await leaderLast(nc, bucketStream(place), kvKey(place, key));
  return entry === undefined || entry.data.length === 0 ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

describe("with real processes", () => {
  let space: TestSpace;
  let auth: AuthService;
  let store: NatsConnection;
  const open: Session[] = [];
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    auth = await startAuthService(space);
    store = await space.store();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(open.splice(0).map((session) => session.close()));
  });
  afterAll(async () => {
    await auth.stop();
    await space.stop();
  });

  const idToken = async (): Promise<string> =>
    DevToken.parse((await auth.post(ExchangePath.DevToken, {})).body).idToken;
  const chatOf = (more: Partial<Parameters<typeof openChatSession>[0]> = {}): Promise<ChatSession> =>
    openChatSession({ exchange: () => auth.face(), space: "main", idToken, ...more });
  const sessionOf = async (credentials: Parameters<typeof connect>[0]["credentials"]): Promise<Session> => {
    const session = await connect({ servers: [space.url], credentials, reconnect: { kind: "bounded", attempts: 2 } });
    open.push(session);
    return session;
  };
  const personAs = (actor: string) =>
    sessionOf({ kind: "user", space: "main", actor, exchange: () => auth.face(), idToken });
  const asOperator = (command: string, args: unknown) => space.call(command, args, { endpoint: EndpointName.Auth });
  const holderOf = async ({ owner, actor }: ChatSession): Promise<ChatHolderRow> => {
    const { rows } = await rowPage(store, names.bucket.auth, {
      filter: `chatholder.${owner}.*`,
      limit: 100,
      via: "leader",
    });
    const all = rows.map(({ data }) => ChatHolderRow.parse(JSON.parse(new TextDecoder().decode(data))));
    const mine = all.find((row) => row.actor === actor);
    if (mine === undefined) throw new Error(`${actor} has no holder row`);
    return mine;
  };
  const granted = async (owner: string, more: object = {}): Promise<void> => {
    await asOperator("actor-grant", { owner, actor: "cli", allowSubscribe: [">"], allowPublish: [">"], ...more });
  };

  test("W10.25 W10.28 W10.29 W10.30 open, connect, talk; the parent is narrowed: no bearer and no connect; retire", async () => {
    const { owner } = await auth.signIn("cli");
    await granted(owner, { capabilities: ["admin"], role: "reviewer" });
    const chat = await chatOf({ allowSubscribe: ["general"], allowPublish: ["general"], name: "Ada on the web" });
    expect(chat).toMatchObject({ owner, name: "Ada on the web", allowSubscribe: ["general"] });
    const web = await sessionOf(chat.credentials);
    expect(web.me).toMatchObject({ id: `${owner}.${chat.actor}`, uid: chat.lifecycleUid });
    const bob = await personAs("bob");
    await Promise.all([web.join("general"), bob.join("general")]);
    const [toBob, toWeb] = [bob.inbox()[Symbol.asyncIterator](), web.inbox()[Symbol.asyncIterator]()];
    await web.send("general", "hello from the web");
    expect((await toBob.next()).value).toMatchObject({ kind: "chat", text: "hello from the web" });
    await bob.dm(web.me.id, "hello yourself");
    expect((await toWeb.next()).value).toMatchObject({ text: "hello yourself", from: { id: bob.me.id } });
    // An agent with the session's lists, and nothing of the parent's.
    expect(await failure(web.send("secrets", "x"))).toMatchObject({ code: "permission-denied" });

    const kept = await chat.credentials.fetch(AbortSignal.timeout(5000));
    await asOperator("actor-narrow", { owner, actor: "cli", allowPublish: ["general"] });
    expect(await failure(auth.connect(kept, "c".repeat(26)))).toMatchObject({ code: "unauthenticated" });
    await expect.poll(() => auth.log(), { timeout: 10_000 }).toContain("the grant it was opened under has changed");
    const denied = await failure(chat.credentials.fetch(AbortSignal.timeout(5000)));
    expect(denied).toMatchObject({ code: "permission-denied", outcome: "not-executed" });

    // Who is still connected is ended, with proof.
    const last = await eventually(
      () => chat.retire(),
      ({ settled }) => settled,
      20_000,
    );
    expect(last).toEqual({ settled: true });
    const { lifecycleUid: uid, actor } = chat;
    expect(await rowOf(store, `gate.${uid}`)).toMatchObject({ state: "retired" });
    expect(await rowOf(store, `lifecycle.${owner}.${actor}`, "records")).toMatchObject({ state: "retired" });
    expect(await rowOf(store, `${owner}.${actor}.${uid}`, "acl")).toBeUndefined();
    expect(ChatOwnerRow.parse(await rowOf(store, chatKey.owner(owner))).slots).toEqual([]);
  }, 90_000);

  test("W10.30 what a retirement could not finish is finished by the sweep", async () => {
    const { owner } = await auth.signIn("cli");
    await granted(owner);
    const chat = await chatOf();
    const web = await sessionOf(chat.credentials);
    // Without the delivery service nobody ends who is connected.
    await space.delivery?.kill("SIGTERM");
    const first = await chat.retire();
    expect(first.settled).toBe(false);
    expect(first.remains).toMatch(/still connected: 1 connection/);
    expect(await holderOf(chat)).toMatchObject({ state: "retired", end: "fenced" });
    await web.close();
    const swept = await eventually(
      () => holderOf(chat),
      (row) => row.state === "retired" && row.end === "settled",
      60_000,
    );
    expect(swept).toMatchObject({ end: "settled" });
    expect(ChatOwnerRow.parse(await rowOf(store, chatKey.owner(owner))).slots).toEqual([]);
    space.delivery?.restart();
    await space.delivery?.ready();
  }, 90_000);

  test("W10.27 kill -9 in the middle of an opening: the same hash is the same session afterwards", async () => {
    const { owner } = await auth.signIn("cli");
    await granted(owner);
    const secrets: string[] = [];
    for (const [at, wait] of [2, 8, 16, 30].entries()) {
      const secret = randomBytes(32).toString("base64url");
      const body = async () => ({ space: "main", idToken: await idToken(), holderHash: hashOf(secret) });
      const asked = await body();
      const first = auth.post(ChatSessionPath.Open, asked).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, wait));
      await auth.kill();
      await first;
      const raw = await rowOf(store, chatKey.holder({ owner, holderHash: hashOf(secret) }));
      const drawn = ChatHolderRow.safeParse(raw).data;
      await auth.restart();
      const again = await eventually(
        async () => auth.post(ChatSessionPath.Open, await body()),
        ({ status }) => status === 200,
        30_000,
      );
      const opened = ChatOpenAnswer.parse(again.body);
      expect({ at, uid: drawn?.lifecycleUid ?? opened.lifecycleUid }).toEqual({ at, uid: opened.lifecycleUid });
      expect(ChatSessionRow.parse(await rowOf(store, chatKey.session(opened.lifecycleUid)))).toMatchObject({
        state: "active",
        actor: opened.actor,
      });
      secrets.push(secret);
    }
    // Each end waits for seconds of quiet: all of them at once.
    const retire = (holderSecret: string) =>
      eventually(
        async () => auth.post(ChatSessionPath.Retire, { space: "main", idToken: await idToken(), holderSecret }),
        ({ status, body: answer }) => status === 200 && ChatRetireAnswer.safeParse(answer).data?.settled === true,
        30_000,
      );
    expect((await Promise.all(secrets.map(retire))).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  }, 120_000);

  test("nothing that it printed is a holder's secret, a bearer or a token", async () => {
    await granted((await auth.signIn("cli")).owner);
    const secrets: string[] = [];
    const random = (count: number): Uint8Array => {
      const drawn = randomBytes(count);
      secrets.push(drawn.toString("base64url"));
      return drawn;
    };
    const token = await idToken();
    const chat = await chatOf({ random, idToken: () => Promise.resolve(token) });
    const { bearer } = await chat.credentials.fetch(AbortSignal.timeout(5000));
    await chat.retire();
    expect(secrets).toHaveLength(1);
    expect(JSON.stringify(chat)).not.toContain(secrets[0]);
    for (const secret of [...secrets, bearer, token]) expect(auth.log()).not.toContain(secret);
  });
});

describe("the rows on a real broker", () => {
  let space: TestSpace;
  let store: Connection;
  let nc: NatsConnection;
  const clock = { ahead: 0 };
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    store = await space.openStore();
    ({ nc } = store);
    await createAuthority(parts()).enrol({ owner: OWNER, actor: "cli" }, SIGN_IN);
  }, 60_000);
  afterAll(() => space.stop());

  /** One process's plane; it dies at the given write. */
  function parts(die?: Death): ChatParts {
    const source = storeSource(space, store, die);
    const own = chatParts(source, planeParts(source), 64);
    return {
      ...own,
      connectionsOf: () => Promise.resolve({ kind: "none" }),
      removeRemains: () => Promise.resolve(),
      now: () => Date.now() + clock.ahead,
    };
  }

  const asked = (secret: string) => ({ owner: OWNER, holderHash: hashOf(secret), lifeSeconds: 600 });
  const holder = async (secret: string) => ChatHolderRow.parse(await rowOf(nc, chatKey.holder(asked(secret))));

  test.each(["before", "after"] as const)(
    "W10.27 W10.30 an opening that dies %s any one of its writes is finished by a retry, or ended by the sweep",
    async (when) => {
      clock.ahead = 0;
      let writes = 0;
      const left: string[] = [];
      for (let at = 1; ; at += 1) {
        const [retried, dropped] = [`${when} ${at} retried`, `${when} ${at} dropped`];
        const died = async (secret: string): Promise<boolean> => {
          try {
            await openChat(parts({ at, when }), asked(secret));
            return false;
          } catch (error) {
            if (error instanceof Died) return true;
            throw error;
          }
        };
        if (!(await died(retried))) break;
        writes = at;
        const opened = await openChat(parts(), asked(retried));
        expect(await openChat(parts(), asked(retried))).toMatchObject({ lifecycleUid: opened.lifecycleUid });
        await died(dropped);
        if (at > 1 || when === "after") left.push(dropped);
      }
      // Those of the ledger in memory, and the two durables.
      expect(writes).toBe(17);
      clock.ahead = ADMISSION_QUIET_MS;
      const sweep = createChatSweep(parts(), () => undefined);
      for (let pass = 0; pass < 12; pass += 1) {
        await sweep.pass();
        await sweep.idle();
      }
      const ends = await Promise.all(left.map(async (secret) => [secret, (await holder(secret)).state]));
      // The last write is the one that lets the session in: it was not left unfinished.
      const done = `after ${writes} dropped`;
      expect(ends).toEqual(left.map((secret) => [secret, secret === done ? "active" : "retired"]));
      const gates = await Promise.all(
        left
          .filter((secret) => secret !== done)
          .map(async (secret) => GateRow.parse(await rowOf(nc, `gate.${(await holder(secret)).lifecycleUid}`)).state),
      );
      expect(new Set(gates)).toEqual(new Set(["retired"]));
    },
    120_000,
  );

  test("W10.30 a day after their expiry all rows are final, and a pass costs one read", async () => {
    clock.ahead = 0;
    await openChat(parts(), asked("the last one"));
    clock.ahead = COMPACT_AFTER_MS + 700_000;
    const costs: number[] = [];
    const own = parts();
    const sweep = createChatSweep(
      {
        ...own,
        holderPage: async (fromSeq, limit) => {
          const page = await own.holderPage(fromSeq, limit);
          costs.push(page.rows.length);
          return page;
        },
      },
      () => undefined,
    );
    const final = await eventually(
      async () => {
        await sweep.pass();
        await sweep.idle();
        return costs.at(-1);
      },
      (cost) => cost === 0,
      60_000,
    );
    expect(final).toBe(0);
    expect(await holder("the last one")).toMatchObject({ state: "retired", end: "compacted" });
    expect(await failure(openChat(parts(), asked("the last one")))).toMatchObject({ code: "failed-precondition" });
    expect(ChatOwnerRow.parse(await rowOf(nc, chatKey.owner(OWNER))).slots).toEqual([]);
  }, 90_000);
});
