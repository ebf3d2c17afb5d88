/** Presence on a real broker: what is written, who may, and what a roster makes of it. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RosterChange } from "../../shared/client/index.ts";
import { api, put, streamFacts } from "../support/raw-jetstream.ts";
import { type Sessions, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const BUCKET = "$KV.cotal_presence_main";

describe("in an open space", () => {
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

  // Both wait for the pace of heartbeats: together.
  test.concurrent("W6.01 W6.02: writes its own key about every two seconds, never offline, and offline once at the end", async () => {
    const raw = await space.store();
    const records: { status: string; ts: number; statusSince?: number; runtime?: unknown }[] = [];
    const keys = new Set<string>();
    const watch = raw.subscribe(`${BUCKET}.>`, {
      callback: (_, message) => {
        if (!message.subject.includes("beat")) return;
        keys.add(message.subject);
        records.push(message.json());
      },
    });
    await raw.flush();
    const bob = await sessions.open("beat");
    await until("four heartbeats", () => records.length >= 4, 20_000);
    await bob.drain();
    watch.unsubscribe();
    expect([...keys]).toEqual([`${BUCKET}.local.beat`]);
    expect(records.slice(0, -1).every(({ status }) => status === "idle")).toBe(true);
    const [first, ...rest] = records;
    const gaps = rest.slice(0, 3).map(({ ts }, index) => ts - (records[index]?.ts ?? 0));
    expect(gaps.every((gap) => gap > 1000 && gap < 6000)).toBe(true);
    expect(records.at(-1)).toMatchObject({ status: "offline", runtime: first?.runtime });
    expect(records.at(-1)).not.toHaveProperty("statusSince");
    expect(new Set(records.slice(0, -1).map(({ statusSince }) => statusSince)).size).toBe(1);
  }, 40_000);

  test.concurrent("W6.03: a peer that stopped without a word is offline once its record is older than the window", async () => {
    const alice = await sessions.open("p_alice");
    const gone = await sessions.open("p_gone");
    const changes: RosterChange[] = [];
    const watch = alice.watchRoster((change) => changes.push(change));
    await until("seen", () => watch.current() && watch.entries().some(({ id, live }) => id === "local.p_gone" && live));
    await gone.close();
    await until(
      "left",
      () => changes.some((change) => change.type === "left" && change.entry.id === "local.p_gone"),
      20_000,
    );
    const entry = watch.entries().find(({ id }) => id === "local.p_gone");
    expect(entry).toMatchObject({ live: false, status: "offline" });
    expect(entry).not.toHaveProperty("statusSince");
    expect((await alice.roster()).some(({ id, live }) => id === "local.p_gone" && live)).toBe(false);
    watch.stop();
  }, 40_000);

  test("W6.13 W11.02: a watch survives records that no reader may keep, and shows a peer of another version", async () => {
    const raw = await space.store();
    const alice = await sessions.open("v_alice");
    const watch = alice.watchRoster(() => undefined);
    await until("current", () => watch.current());
    const good = { card: { id: "local.v9", name: "v9", protocolVersion: "9.9" }, status: "idle", ts: Date.now() };
    await put(
      raw,
      `${BUCKET}.local.bad`,
      '{"card":{"id":"local.bad","name":{"toString":null}},"status":"idle","ts":1}',
    );
    await put(raw, `${BUCKET}.local.worse`, "{");
    await put(raw, `${BUCKET}.local.copy`, JSON.stringify(good), { "Nats-Stream": "x" });
    await put(raw, `${BUCKET}.local.v9`, JSON.stringify(good));
    await until("the good one is in", () => watch.entries().some(({ id }) => id === "local.v9"));
    expect(watch.entries().map(({ id }) => id)).not.toContain("local.bad");
    expect(alice.stats().rejected).toMatchObject({ presence: 2, "stored-copy": 1 });
    await alice.listen();
    const text = JSON.stringify({
      id: "1",
      ts: 1,
      space: "main",
      from: { id: "local.v9", name: "v9" },
      to: "local.v_alice",
      parts: [{ kind: "text", text: "from the future" }],
    });
    await put(raw, "cotal.main.inst.local.v_alice.local.v9", text);
    expect(await take(alice, 1)).toMatchObject([{ text: "from the future" }]);
    expect(await alice.dm("v9", "hello back")).toMatchObject({ kind: "dm" });
    await put(raw, `${BUCKET}.local.v9`, "", { "KV-Operation": "DEL" });
    await until("deleted is offline", () => watch.entries().some(({ id, live }) => id === "local.v9" && !live));
    watch.stop();
  });

  test("W6.14: fifteen hundred members are listed, and no consumer is left behind", async () => {
    const raw = await space.store();
    const alice = await sessions.open("many");
    const write = (n: number) => {
      const id = `local.m${n}`;
      return put(
        raw,
        `${BUCKET}.${id}`,
        JSON.stringify({ card: { id, name: `m${n}` }, status: "idle", ts: Date.now() }),
      );
    };
    await Promise.all(Array.from({ length: 1500 }, (_, n) => write(n)));
    const roster = await alice.roster();
    expect(roster.filter(({ name }) => /^m\d+$/.test(name))).toHaveLength(1500);
    expect((await streamFacts(raw, "KV_cotal_presence_main"))?.consumers).toBe(0);
  });

  test("a watch is not current while it can't know, and says so; after the broker is back it is whole again", async () => {
    const alice = await sessions.open("w_alice");
    const bob = await sessions.open("w_bob");
    const changes: string[] = [];
    const watch = alice.watchRoster((change) => changes.push(change.type));
    expect(watch.current()).toBe(false);
    await until("current", () => watch.current() && watch.entries().some(({ id, live }) => id === bob.me.id && live));
    await space.broker.kill();
    await until("not current", () => !watch.current());
    await space.broker.restart();
    await until("current again", () => watch.current(), 30_000);
    await until("bob is seen", () => watch.entries().some(({ id, live }) => id === bob.me.id && live), 30_000);
    expect(changes.filter((type) => type.includes("current"))).toEqual(["current", "not-current", "current"]);
    watch.stop();
  }, 90_000);
});

describe("in an authenticated space", () => {
  let space: TestSpace;
  let sessions: Sessions;
  beforeAll(async () => {
    space = await startSpace({ auth: "static" });
    sessions = sessionsOf(space);
  });
  afterAll(async () => {
    await sessions.closeAll();
    await space.stop();
  });

  test("W6.01: another's key is refused by the broker", async () => {
    const mallory = await space.mint({ actor: "mallory" });
    const nc = await space.connect(mallory);
    const store = await space.store();
    const bob = await sessions.minted({ actor: "bob" });
    await until("bob is here", async () => (await bob.roster()).some(({ id }) => id === bob.me.id));
    const denied = (async () => {
      for await (const status of nc.status()) if (status.type === "error") return status.error.message;
      return "";
    })();
    nc.publish(`${BUCKET}.${bob.me.id}`, "{}");
    await nc.flush();
    expect(await denied).toContain("Permissions Violation");
    const { message } = await api(store, "STREAM.MSG.GET.KV_cotal_presence_main", {
      last_by_subj: `${BUCKET}.${bob.me.id}`,
    });
    expect(Buffer.from((message as { data: string }).data, "base64").toString()).toContain(bob.me.id);
  });

  test("W61.10 W61.09 W61.01: an agent may ask for a plane and not answer for it; unserved is unbound", async () => {
    const bob = await sessions.minted({ actor: "asker" });
    await space.delivery?.kill();
    await until("nobody is there", async () => (await bob.liveness("delivery")).responder === "unbound");
    space.delivery?.restart();
    await space.delivery?.ready();
    expect(await bob.liveness("manager")).toEqual({ responder: "unbound" });
    await expect(bob.liveness("auth" as "manager")).rejects.toMatchObject({ code: "bad-request" });
    const nc = await space.connect(await space.mint({ actor: "server" }));
    const served = nc.subscribe("cotal.main.live.delivery.*.*");
    expect(await served.closed).toMatchObject({ name: "PermissionViolationError" });
  }, 60_000);

  test("W6.10: every record of a session carries its lifecycle", async () => {
    const bob = await sessions.minted({ actor: "uid" });
    await until("here", async () => (await bob.roster()).some(({ id }) => id === bob.me.id));
    const entry = (await bob.roster()).find(({ id }) => id === bob.me.id);
    expect(entry).toMatchObject({ lifecycleUid: bob.me.uid, protocolVersion: "0.4" });
  });
});
