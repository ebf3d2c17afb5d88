/** The main path: sessions that talk in an open space with a real provisioner, and in an authenticated one. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dump } from "../support/raw-jetstream.ts";
import { type Sessions, sessionsOf, take, texts } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

describe("an open space", () => {
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

  test("W5.01 W4.02: channel, direct message and role each name the fact that they rest on", async () => {
    const alice = await sessions.open("alice");
    const bob = await sessions.open("bob", { role: "reviewer" });
    await bob.listen();
    const joined = await bob.join("team.backend");
    expect(joined).toMatchObject({ channel: "team.backend", state: "joined live", class: "durable" });
    expect(joined.shortfall).toContain("durable backstop unavailable");
    await joined.replayed;

    const said = await alice.send("#team.backend", "hello @bob");
    expect(said).toMatchObject({ kind: "chat", stream: "CHAT_main", duplicate: false });
    expect(await take(bob, 1)).toMatchObject([
      { kind: "chat", id: said.id, channel: "team.backend", text: "hello @bob", historical: false, mentions: ["bob"] },
    ]);
    const written = await alice.dm("local.bob", "psst");
    expect(written).toMatchObject({ kind: "dm", stream: "DM_main" });
    expect(await take(bob, 1)).toMatchObject([
      { kind: "dm", text: "psst", from: { id: "local.alice", name: "alice" }, receivedSeq: written.seq, deliveries: 1 },
    ]);
    const asked = await alice.ask("reviewer", "look?");
    expect(asked).toMatchObject({ kind: "ask", stream: "TASK_main" });
    expect(asked.waitsFor).toBeUndefined();
    expect(await take(bob, 1)).toMatchObject([{ kind: "ask", role: "reviewer", text: "look?" }]);

    const stored = await dump(await space.store(), "CHAT_main");
    const entry = stored.find(({ seq }) => seq === said.seq);
    expect(entry?.hdrs).toContain(`Nats-Msg-Id: ${said.id}`);
    expect(JSON.parse(entry?.data ?? "")).toMatchObject({ id: said.id, from: { id: "local.alice" } });
  });

  test("a handler gets the same items, and stops when it is told to", async () => {
    const alice = await sessions.open("h_alice");
    const bob = await sessions.open("h_bob");
    const got: string[] = [];
    await bob.listen();
    const handling = bob.onItem((item) => void got.push(item.text), { concurrency: 4 });
    await Promise.all(Array.from({ length: 50 }, (_, n) => alice.dm("local.h_bob", `m${n}`)));
    await until("50 handled", () => got.length === 50);
    await handling.stop();
    expect(await handling.ended).toBeUndefined();
    expect(new Set(got).size).toBe(50);
    expect(bob.stats()).toMatchObject({ held: 0, duplicates: 0, received: { dm: 50 } });
  });

  test("WHO: a name of two live peers is refused and both are listed; one away is reached by its id", async () => {
    const alice = await sessions.open("w_alice");
    await sessions.open("twin_a", { name: "Twin" });
    const other = await sessions.open("twin_b", { name: "Twin" });
    await until("both are here", async () => (await alice.roster()).filter(({ name }) => name === "Twin").length === 2);
    await expect(alice.dm("Twin", "hi")).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("local.twin_a, local.twin_b") as string,
    });
    await other.drain();
    await until(
      "one is left",
      async () => (await alice.roster()).filter(({ name, live }) => live && name === "Twin").length === 1,
    );
    expect(await alice.resolve("Twin")).toEqual({ owner: "local", actor: "twin_a" });
    await expect(alice.dm("nobody here", "hi")).rejects.toMatchObject({ code: "not-found", outcome: "not-executed" });
  });

  test("two readers of one inbox are refused, and a drain ends the one there is", async () => {
    const bob = await sessions.open("r_bob");
    const inbox = bob.inbox();
    expect(() => bob.inbox()).toThrow("being read already");
    const waiting = inbox.next();
    await bob.drain();
    expect(await waiting).toEqual({ done: true, value: undefined });
    expect(await bob.closed).toBeUndefined();
  });
});

describe("an authenticated space", () => {
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

  test("W6.17 W4.05: chat and direct messages work, to somebody away as well, and nothing is asked of presence", async () => {
    const lists = { subscribe: ["general"], publish: ["general"] };
    const alice = await sessions.minted({ actor: "alice", ...lists });
    const away = await space.mint({ actor: "bob", ...lists });
    const sent = await alice.dm(`${away.view.principal.owner}.bob`, "for later");
    expect(sent).toMatchObject({ stream: "DM_main", duplicate: false });
    await alice.send("general", "before bob came");
    const bob = await sessions.minted({ actor: "carol", ...lists });
    await (
      await bob.join("general")
    ).replayed;
    expect(await take(bob, 1)).toMatchObject([{ text: "before bob came", historical: true }]);
    await alice.send("general", "live");
    expect(await take(bob, 1)).toMatchObject([{ text: "live", historical: false }]);
    const late = await sessions.minted({ actor: "dora", ...lists });
    await alice.dm(late.me.id, "hi");
    expect(texts(await take(late, 1))).toEqual(["hi"]);
  });

  test("W6.17: a peer that the roster shows offline is written to all the same", async () => {
    const alice = await sessions.minted({ actor: "gate_alice" });
    const { text } = await space.mint({ actor: "gate_bob" });
    const credentials = { kind: "static", text } as const;
    const bob = await sessions.own({ credentials });
    await bob.listen();
    await bob.drain();
    await until("bob is offline", async () =>
      (await alice.roster()).some(({ id, status }) => id === bob.me.id && status === "offline"),
    );
    await alice.dm(bob.me.id, "when you are back");
    expect(texts(await take(await sessions.own({ credentials }), 1))).toEqual(["when you are back"]);
  });

  test("W81.19: without a delivery daemon a role request is stored and says what it waits for; a holder says why it shows none", async () => {
    const alice = await sessions.minted({ actor: "a2", publish: [] });
    const holder = await sessions.minted({ actor: "h2", role: "reviewer" });
    await space.delivery?.kill();
    // Silence says nothing, and a broker takes a moment to see that a killed process is gone.
    await expect
      .poll(() => alice.ask("reviewer", "look?"), { timeout: 25_000 })
      .toMatchObject({ kind: "ask", waitsFor: "delivery" });
    await holder.listen();
    expect(holder.told).toContainEqual(
      expect.objectContaining({ type: "takes-nothing", role: "reviewer", cause: "no-daemon" }),
    );
    expect(holder.inboxState()).toMatchObject({ role: "closed" });
    space.delivery?.restart();
    await space.delivery?.ready();
  }, 60_000);

  // Each drain takes two seconds: these two have agents of their own, and wait together.
  test.concurrent("W8.05: a session binds the inbox that was made for it, and one that drained leaves no pull behind to swallow mail", async () => {
    const alice = await sessions.minted({ actor: "d_alice" });
    const { text, view } = await space.mint({ actor: "d_bob" });
    const credentials = { kind: "static", text } as const;
    // The broker serves a pull that was left behind about every other time; each drain takes two seconds.
    for (let round = 0; round < 2; round += 1) {
      const bob = await sessions.own({ credentials });
      await bob.listen();
      await until("the inbox answers", () => bob.inboxState().dm === "ok");
      await new Promise((resolve) => setTimeout(resolve, 300));
      await bob.drain();
      await alice.dm(`${view.principal.owner}.d_bob`, `round ${round}`);
      const again = await sessions.own({ credentials });
      expect(await take(again, 1)).toMatchObject([{ text: `round ${round}`, deliveries: 1 }]);
      await again.drain();
    }
  }, 90_000);

  test.concurrent("a drain leaves no pull behind either while another session of the same credential stays", async () => {
    const alice = await sessions.minted({ actor: "two_alice" });
    const { text, view } = await space.mint({ actor: "two_bob" });
    const credentials = { kind: "static", text } as const;
    const to = `${view.principal.owner}.two_bob`;
    await sessions.own({ credentials });
    const burst = async (): Promise<void> => {
      await Promise.all(Array.from({ length: 200 }, (_, n) => alice.dm(to, String(n))));
    };
    for (let round = 0; round < 2; round += 1) {
      await burst();
      const reader = await sessions.own({ credentials });
      await take(reader, 200);
      await reader.drain();
      await burst();
      const next = await sessions.own({ credentials });
      const items = await take(next, 200);
      expect(items.filter(({ deliveries }) => deliveries > 1)).toEqual([]);
      await next.drain();
    }
  }, 90_000);
});
