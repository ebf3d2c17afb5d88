/** What a session does when the broker dies, freezes or refuses it late, and when senders are hostile. */
import fc from "fast-check";
import { readFileSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { join } from "node:path";
import { headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Sessions, sessionsOf, take, texts } from "../support/sessions.ts";
import { nearMiss } from "../support/near-miss.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import type { SessionOptions } from "../../shared/client/index.ts";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { formatCreds } from "../../shared/trust/creds.ts";
import { ProvisionerFile, keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { SpaceFile } from "../../shared/trust/space-file.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";

describe("a broker that goes away", () => {
  let space: TestSpace;
  let sessions: Sessions;
  let wide: Minted;
  const minted = new Map<string, string>();
  const session = (actor: string, more: Partial<SessionOptions> = {}) =>
    sessions.own({ credentials: { kind: "static", text: minted.get(actor) ?? "" }, ...more });
  beforeAll(async () => {
    space = await startSpace({ auth: "static" });
    sessions = sessionsOf(space);
    // All before the first fault: a ledger write may well fail while the broker is coming back.
    const channels = ["general", "gap"];
    // An observer takes no durable membership: what it missed, history has.
    minted.set("bo3", (await space.mint({ actor: "bo3", profile: "observer" })).text);
    for (const actor of ["alice", "bob", "al2", "bo2", "al4", "bo4", "bo5", "al6", "bo6"]) {
      minted.set(actor, (await space.mint({ actor, subscribe: channels, publish: channels })).text);
    }
    wide = await space.mint({ actor: "narrow", subscribe: ["a", "b"], publish: [] });
  });
  afterAll(async () => {
    await sessions.closeAll();
    await space.stop();
  });
  // A test may have killed the broker just before: what mints must be back.
  beforeEach(() => until("the provisioner answers", () => answers(space)), 60_000);

  test("kill -9 while direct messages flow: every acknowledged one is handled, and the inbox comes back by itself", async () => {
    const alice = await session("alice", { limits: { publishTimeoutMs: 15_000 } });
    const bob = await session("bob");
    const handled = new Set<string>();
    await bob.listen();
    const handling = bob.onItem((item) => void handled.add(item.text));
    const acknowledged: string[] = [];
    let stop = false;
    let sent = 0;
    const sending = (async () => {
      while (!stop) {
        const text = `m${(sent += 1)}`;
        void alice.dm(bob.me.id, text).then(
          () => acknowledged.push(text),
          () => undefined,
        );
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    })();
    await until("traffic", () => handled.size > 100);
    await space.broker.kill();
    await new Promise((resolve) => setTimeout(resolve, 500));
    await space.broker.restart();
    const before = acknowledged.length;
    await until("traffic after it", () => acknowledged.length > before + 200, 25_000);
    stop = true;
    await sending;
    await until("all acknowledged are handled", () => acknowledged.every((text) => handled.has(text)), 90_000);
    await handling.stop();
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "down" }));
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "up" }));
    expect(acknowledged.length).toBeGreaterThan(300);
  }, 150_000);

  test("W2.04: after the broker came back the session has its principal, inbox and channels, and catches up", async () => {
    const alice = await session("al2");
    const bob = await session("bo2");
    await (
      await bob.join("general")
    ).replayed;
    const { id, uid } = bob.me;
    await bob.listen();
    await space.broker.kill();
    await space.broker.restart();
    await until("both are up", () => [alice, bob].every(({ told }) => told.some(({ type }) => type === "up")));
    await until(
      "alice can post",
      async () => (await alice.send("general", "back").catch(() => undefined)) !== undefined,
    );
    await alice.dm(id, "and here");
    expect(texts(await take(bob, 2)).toSorted()).toEqual(["and here", "back"]);
    expect(bob.me).toMatchObject({ id, uid });
    expect(bob.joined().map(({ channel }) => channel)).toEqual(["general"]);
  }, 60_000);

  test("what a durable channel got while who is no member of it was cut off is read back, marked historical", async () => {
    // He comes back seconds after the store's connection does.
    const bob = await session("bo3", { reconnect: { kind: "endless", baseMs: 6000, capMs: 6000 } });
    await (
      await bob.join("gap")
    ).replayed;
    const store = await space.store();
    await space.broker.kill();
    await until("bob noticed", () => bob.told.some(({ type }) => type === "down"));
    await space.broker.restart();
    const owner = bob.me.principal.owner;
    const text = JSON.stringify({
      id: "gap-1",
      ts: 1,
      space: "main",
      from: { id: `${owner}.eve`, name: "eve" },
      channel: "gap",
      parts: [{ kind: "text", text: "missed" }],
    });
    await until("posted", async () =>
      store.request(`cotal.main.chat.${owner}.eve.gap`, text, { timeout: 1000 }).then(
        () => true,
        () => false,
      ),
    );
    expect(await take(bob, 1)).toMatchObject([{ text: "missed", historical: true }]);
  }, 60_000);

  test("a frozen broker: sends end with what is known, and after the thaw all goes on", async () => {
    const alice = await session("al4", { limits: { publishTimeoutMs: 1000 } });
    const bob = await session("bo4");
    await bob.listen();
    await until("listening", () => bob.inboxState().dm === "ok");
    space.broker.freeze();
    await new Promise((resolve) => setTimeout(resolve, 200));
    await expect(alice.dm(bob.me.id, "into the ice")).rejects.toMatchObject({
      code: "unavailable",
      outcome: "unknown",
    });
    await new Promise((resolve) => setTimeout(resolve, 3000));
    space.broker.thaw();
    await until("a send works", async () => (await alice.dm(bob.me.id, "thawed").catch(() => undefined)) !== undefined);
    const items = await take(bob, 2);
    expect(texts(items)).toContain("thawed");
  }, 90_000);

  test("a broker that is frozen for longer than two pulls fails no reader: its silence is none of the durable", async () => {
    const alice = await session("al6");
    const bob = await session("bo6", { limits: { pullExpiresMs: 200 } });
    await bob.listen();
    await until("listening", () => bob.inboxState().dm === "ok");
    const next = bob.inbox().next();
    const lostBefore = bob.stats().pullsLost;
    space.broker.freeze();
    await until("two pulls are lost", () => bob.stats().pullsLost >= lostBefore + 2);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    space.broker.thaw();
    await until("a send works", async () => (await alice.dm(bob.me.id, "thawed").catch(() => undefined)) !== undefined);
    expect((await next).value).toMatchObject({ kind: "dm", text: "thawed" });
    expect(bob.told).not.toContainEqual(expect.objectContaining({ type: "durable-missing" }));
  }, 60_000);

  test("a drain ends within five seconds although the broker is frozen", async () => {
    const bob = await session("bo5");
    await bob.listen();
    space.broker.freeze();
    const started = performance.now();
    await bob.drain();
    const took = performance.now() - started;
    space.broker.thaw();
    expect(took).toBeLessThan(5500);
  }, 30_000);

  test("W7.06: a read list that was narrowed under a joined client drops the channel, with an event", async () => {
    const file = join(space.state, "narrow.creds");
    writeFileSync(file, wide.text);
    const bob = await sessions.own({ credentials: { kind: "static", file } });
    await bob.join("a");
    await bob.join("b");
    writeFileSync(file, await reminted(space, wide, ["a"]));
    await space.broker.kill();
    await space.broker.restart();
    await until("dropped", () => bob.told.some((event) => event.type === "refused" && event.channel === "b"));
    expect(bob.joined().map(({ channel }) => channel)).toEqual(["a"]);
  }, 60_000);
});

async function answers(space: TestSpace): Promise<boolean> {
  try {
    await space.call("limits-show", {}, { deadlineMs: 1000 });
    return true;
  } catch {
    return false;
  }
}

/** A credential of the same lifecycle with another nkey and another read list. */
async function reminted(space: TestSpace, { view }: Minted, allowSubscribe: readonly string[]): Promise<string> {
  const paths = trustPaths(space.state);
  const file = SpaceFile.parse(
    JSON.parse(readFileSync(join(paths.provisioner("main"), ProvisionerFile.Space), "utf8")),
  );
  const key = newKey("user");
  const { jwt } = await mintUser({
    profile: "agent",
    account: Account.Front,
    accountKey: file.front,
    signer: keptKey(join(paths.provisioner("main"), ProvisionerFile.FrontSigner), "account"),
    userKey: key.publicKey,
    expires: Math.floor(Date.now() / 1000) + 3600,
    limits: { subs: 100, payload: 100_000 },
    scope: {
      space: "main",
      holder: { principal: view.principal, uid: view.uid },
      inboxNonce: view.inboxNonce,
      allowSubscribe,
      allowPublish: [],
      ...NO_COMMANDS,
    },
  });
  return formatCreds(jwt, key);
}

describe("hostile bytes", () => {
  let space: TestSpace;
  let sessions: Sessions;
  beforeAll(async () => {
    space = await startSpace({ auth: "open" });
    sessions = sessionsOf(space);
  });
  afterAll(async () => {
    await sessions.closeAll();
    await space.stop();
  });

  test("W5.06: whatever is published on channel, inbox, queue and presence, the session lives and shows what is right", async () => {
    const raw = await space.store();
    const bob = await sessions.open("bob", { role: "r" });
    await bob.listen();
    await (
      await bob.join("noise")
    ).replayed;
    const watch = bob.watchRoster(() => undefined);
    const items: string[] = [];
    const handling = bob.onItem((item) => void items.push(`${item.kind}:${item.text}:${item.from.name}`));
    const subjects = [
      "cotal.main.chat.local.eve.noise",
      "cotal.main.inst.local.bob.local.eve",
      "cotal.main.svc.r.local.eve",
      "$KV.cotal_presence_main.local.eve",
    ];
    const valid = {
      id: "v",
      ts: 1,
      space: "main",
      from: { id: "local.eve", name: "eve" },
      to: "local.bob",
      mentions: ["bob"],
      parts: [{ kind: "text", text: "x" }],
    };
    const presence = { card: { id: "local.eve", name: "eve", kind: "agent" }, status: "idle", ts: 1 };
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...subjects),
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          nearMiss([valid, presence]).map((value) => new TextEncoder().encode(JSON.stringify(value) ?? "")),
        ),
        fc.option(
          fc.tuple(fc.constantFrom("Nats-Stream", "X", "KV-Operation", "Status"), fc.string({ maxLength: 20 })),
        ),
        async (subject, bytes, header) => {
          const block = header === null ? undefined : headers();
          if (header !== null) block?.append(header[0], header[1].replace(/[^ -~]/g, "?"));
          raw.publish(subject, bytes, block === undefined ? {} : { headers: block });
          await Promise.resolve();
        },
      ),
      { numRuns: 1500 },
    );
    await raw.flush();
    await expectStillHears();

    async function expectStillHears(): Promise<void> {
      const alice = await sessions.open("alice");
      await alice.send("noise", "the end");
      await alice.dm("local.bob", "the end");
      await alice.ask("r", "the end");
      await until("all three", () => ["chat", "dm", "ask"].every((kind) => items.includes(`${kind}:the end:alice`)));
    }
    await handling.stop();
    expect(bob.told.filter(({ type }) => type === "closed" || type === "down")).toEqual([]);
    expect(Object.values(bob.stats().rejected).reduce((sum, n) => sum + n, 0)).toBeGreaterThan(100);
    await until("the roster is whole", () => watch.current());
    watch.stop();
  }, 60_000);

  test("a header block that no client can read costs the message and not the session", async () => {
    const bob = await sessions.open("hdr");
    await bob.listen();
    await (
      await bob.join("hdr")
    ).replayed;
    await rawPublish(space.broker.port, "cotal.main.chat.local.eve.hdr", "NATS/1.0\r\nbad key: x\r\n\r\n", "{}");
    await rawPublish(space.broker.port, "cotal.main.inst.local.hdr.local.eve", "NATS/1.0\r\nk\u0001: x\r\n\r\n", "{}");
    const alice = await sessions.open("hdr_a");
    await alice.send("hdr", "after");
    await alice.dm("local.hdr", "after");
    expect(texts(await take(bob, 2))).toEqual(["after", "after"]);
    expect(bob.stats().rejected).toMatchObject({ "malformed-envelope": 2 });
  });
});

/** Publishes a message as bytes on a socket: what a client library would never send. */
async function rawPublish(port: number, subject: string, block: string, body: string): Promise<void> {
  const socket = createConnection(port, "127.0.0.1");
  const total = block.length + body.length;
  socket.write(
    `CONNECT {"verbose":false,"headers":true}\r\nHPUB ${subject} ${block.length} ${total}\r\n${block}${body}\r\nPING\r\n`,
  );
  await new Promise<void>((resolve, reject) => {
    socket.on("data", (data) => {
      if (data.toString().includes("PONG")) resolve();
    });
    socket.once("error", reject);
  });
  socket.destroy();
}
