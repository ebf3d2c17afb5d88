/** Joining, replay and its seam, the live tail, and what a channel promises. */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RejectReason } from "../../shared/protocol/chat/message.ts";
import { put } from "../support/raw-jetstream.ts";
import { type Sessions, sessionsOf, take, texts } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

let serial = 0;
const post = (change: object) => ({
  id: `c${(serial += 1)}`,
  ts: 1,
  space: "main",
  from: { id: "local.eve", name: "eve" },
  channel: "x",
  parts: [{ kind: "text", text: "x" }],
  ...change,
});

describe("in an open space", () => {
  let space: TestSpace;
  let sessions: Sessions;
  let raw: NatsConnection;
  beforeAll(async () => {
    space = await startSpace({ auth: "open" });
    sessions = sessionsOf(space);
    raw = await space.store();
  });
  afterAll(async () => {
    await sessions.closeAll();
    await space.stop();
  });
  const say = (channel: string, body: object | string, headers: Record<string, string> = {}) =>
    put(raw, `cotal.main.chat.local.eve.${channel}`, typeof body === "string" ? body : JSON.stringify(body), headers);

  test("W7.08: while posts keep coming, a join misses none and shows none twice, history first", async () => {
    // The store keeps a thousand of one sender and channel, so each of these stays below it.
    const [alice, carol, dave] = [await sessions.open("s_a"), await sessions.open("s_c"), await sessions.open("s_d")];
    const bob = await sessions.open("s_b");
    await Promise.all(Array.from({ length: 900 }, (_, n) => alice.send("seam", `a${n}`)));
    await Promise.all(Array.from({ length: 900 }, (_, n) => carol.send("seam", `c${n}`)));
    let sent = 0;
    const posting = (async () => {
      while (sent < 900) {
        await Promise.all(Array.from({ length: 10 }, () => dave.send("seam", `d${(sent += 1)}`)));
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    })();
    await until("posts are coming", () => sent > 50);
    const joined = await bob.join("seam");
    const items = await take(bob, 2700);
    const { count, complete } = await joined.replayed;
    await posting;
    expect(complete).toBe(true);
    expect(count).toBeGreaterThanOrEqual(1850);
    expect(new Set(texts(items)).size).toBe(2700);
    expect(items.findLastIndex(({ historical }) => historical)).toBe(count - 1);
    const live = items.slice(count).map(({ text }) => Number(text.slice(1)));
    expect(live).toEqual(live.toSorted((x, y) => x - y));
    expect(bob.stats()).toMatchObject({ dropped: 0, received: { chat: 2700 } });
  });

  test("W7.08 W7.04: the window that is configured just before the join bounds the replay", async () => {
    const alice = await sessions.open("win_a");
    const bob = await sessions.open("win_b");
    await alice.send("window", "old");
    await new Promise((resolve) => setTimeout(resolve, 2500));
    await alice.send("window", "young");
    await space.call("channel-set", { channel: "window", change: { replayWindow: "2s" } });
    expect(await (await bob.join("window")).replayed).toEqual({ count: 1, complete: true });
    expect(await take(bob, 1)).toMatchObject([{ text: "young", historical: true }]);
  });

  test("W7.09: replay off brings no backfill, and history is still there to read", async () => {
    const alice = await sessions.open("off_a");
    const bob = await sessions.open("off_b");
    await alice.send("quiet", "before");
    await space.call("channel-set", { channel: "quiet", change: { replay: false } });
    expect(await (await bob.join("quiet")).replayed).toEqual({ count: 0, complete: true });
    await alice.send("quiet", "after");
    expect(texts(await take(bob, 1))).toEqual(["after"]);
    expect(texts(await bob.history("quiet"))).toEqual(["before", "after"]);
  });

  test("W4.03: the class comes from the channel's settings; on a live channel what was missed is gone", async () => {
    const alice = await sessions.open("live_a");
    const bob = await sessions.open("live_b");
    await space.call("channel-set", { channel: "chatter", change: { deliveryClass: "live", replay: false } });
    await alice.send("chatter", "missed");
    const joined = await bob.join("chatter");
    expect(joined).toMatchObject({ class: "live", state: "joined live" });
    expect(joined.shortfall).toBeUndefined();
    await alice.send("chatter", "heard");
    expect(texts(await take(bob, 1))).toEqual(["heard"]);
    expect(bob.stats().received.chat).toBe(1);
  });

  test("W7.15: a pattern with * or the root > is joined live only, and says so", async () => {
    const alice = await sessions.open("pat_a");
    const bob = await sessions.open("pat_b");
    for (const pattern of ["pat.*", ">"]) {
      expect((await bob.join(pattern)).shortfall).toContain("live only");
    }
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "shortfall", subject: ">" }));
    await bob.leave(">");
    await alice.send("pat.one", "in");
    await alice.send("pat.one.deep", "not in");
    await alice.send("pat.two", "in too");
    expect(texts(await take(bob, 2))).toEqual(["in", "in too"]);
  });

  test("a channel and its family both reach the reader, each post once", async () => {
    const alice = await sessions.open("fam_a");
    const bob = await sessions.open("fam_b");
    for (const channel of ["fam", "fam.>", "fam.x"]) await (await bob.join(channel)).replayed;
    await alice.send("fam", "itself");
    await alice.send("fam.x", "child");
    expect(texts(await take(bob, 2))).toEqual(["itself", "child"]);
    await bob.leave("fam");
    await alice.send("fam", "gone");
    await alice.send("fam.x", "still");
    expect(texts(await take(bob, 1))).toEqual(["still"]);
  });

  test("W7.07: the last channel may be left, and after it nothing is heard", async () => {
    const alice = await sessions.open("leave_a");
    const bob = await sessions.open("leave_b");
    await (
      await bob.join("only")
    ).replayed;
    expect(await bob.leave("#only")).toBe(true);
    expect(await bob.leave("only")).toBe(false);
    expect(bob.joined()).toEqual([]);
    await alice.send("only", "unheard");
    await alice.dm("local.leave_b", "x").catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(bob.stats().received.chat).toBe(0);
  });

  test("W5.10 W5.05 W4.10 W3.04: poison on a live channel and in history is dropped, counted and never shown", async () => {
    const bob = await sessions.open("poison");
    await (
      await bob.join("x")
    ).replayed;
    const poison = async () => {
      await say("x", "{not json");
      await say("x", post({ from: { id: "local.mallory", name: "m" } }));
      await say("x", post({ id: undefined }));
      await say("x", post({}), { "nats-SEQUENCE": "" });
      await put(
        raw,
        "cotal.main.chat.UAQGWOEVJKMIO4WX.eve.x",
        JSON.stringify(post({ from: { id: "UAQGWOEVJKMIO4WX.eve", name: "u" } })),
      );
    };
    const expected = {
      [RejectReason.MalformedJson]: 1,
      [RejectReason.SenderMismatch]: 1,
      [RejectReason.MalformedEnvelope]: 1,
      [RejectReason.StoredCopy]: 1,
    };
    await poison();
    await say("x", post({ parts: [{ kind: "text", text: "good" }] }));
    expect(texts(await take(bob, 1))).toEqual(["good"]);
    expect(bob.stats().rejected).toMatchObject(expected);
    const reader = await sessions.open("poison_h");
    expect(texts(await reader.history("x"))).toEqual(["good"]);
    expect(reader.stats().rejected).toMatchObject(expected);
  });

  test("W4.09 W4.10: live and history fold by (sender, id), and an empty id never", async () => {
    const bob = await sessions.open("fold");
    await say("fold", post({ id: "a" }));
    await say("fold", post({ id: "" }));
    await say("fold", post({ id: "" }));
    expect(await (await bob.join("fold")).replayed).toMatchObject({ count: 3 });
    await say("fold", post({ id: "a" }));
    await say("fold", post({ id: "b" }));
    const items = await take(bob, 4);
    expect(items.map(({ id }) => id)).toEqual(["a", "", "", "b"]);
    expect(bob.stats().duplicates).toBe(1);
  });

  test("a reader that kept its place reads on from there, marked historical", async () => {
    const alice = await sessions.open("kept_a");
    const seqs: number[] = [];
    for (const text of ["1", "2", "3"]) seqs.push((await alice.send("kept", text)).seq);
    const bob = await sessions.open("kept_b");
    await (
      await bob.join("kept", { fromSeq: (seqs[1] ?? 0) + 1 })
    ).replayed;
    expect(await take(bob, 1)).toMatchObject([{ text: "3", historical: true, receivedSeq: seqs[2] }]);
    expect(bob.stats().received.chat).toBe(1);
    const position = bob.joined()[0]?.position ?? 0;
    expect(position).toBeGreaterThanOrEqual(seqs[2] ?? 0);
    const next = await sessions.open("kept_b2");
    expect(await (await next.join("kept", { fromSeq: position + 1 })).replayed).toEqual({ count: 0, complete: true });
  });

  test("history: the last so many, and everything since", async () => {
    const alice = await sessions.open("hist");
    for (let n = 0; n < 30; n += 1) await alice.send("hist", String(n));
    expect(texts(await alice.history("hist", { limit: 3 }))).toEqual(["27", "28", "29"]);
    const all = await alice.history("hist");
    expect(all).toHaveLength(30);
    expect(texts(await alice.history("hist", { fromSeq: all[10]?.receivedSeq ?? 0, limit: 2 }))).toEqual(["10", "11"]);
    expect(await alice.history("nothing-here", { limit: 5 })).toEqual([]);
  });
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

  test("W7.05: a join within the read list is effective, one outside it is refused and leaves nothing behind", async () => {
    const bob = await sessions.minted({ actor: "bob", subscribe: ["team.>"], publish: ["team.>"] });
    await expect(bob.join("secrets")).rejects.toMatchObject({ code: "permission-denied", outcome: "not-executed" });
    await expect(bob.join("team")).rejects.toMatchObject({ code: "permission-denied" });
    expect(await bob.join("team.one")).toMatchObject({ state: "joined durable" });
    expect(bob.joined().map(({ channel }) => channel)).toEqual(["team.one"]);
    const part = await sessions.minted({ actor: "part", subscribe: ["team.*"] });
    await expect(part.join("team.>")).rejects.toMatchObject({ code: "permission-denied" });
    expect(await part.join("team.*")).toMatchObject({ state: "joined live" });
    const carol = await sessions.minted({ actor: "carol", publish: ["team.>"] });
    await carol.send("team.one", "still connected");
    expect(texts(await take(bob, 1))).toEqual(["still connected"]);
  });

  test("an agent does not hear itself, live or replayed, unless it asks to; history has everything", async () => {
    const lists = { subscribe: ["echo"], publish: ["echo"] };
    const me = await sessions.minted({ actor: "me", ...lists });
    const peer = await sessions.minted({ actor: "peer", ...lists });
    await me.send("echo", "before");
    await (
      await me.join("echo")
    ).replayed;
    await me.send("echo", "mine");
    await peer.send("echo", "theirs");
    expect(texts(await take(me, 1))).toEqual(["theirs"]);
    expect(texts(await me.history("echo"))).toEqual(["before", "mine", "theirs"]);
    const viewer = await sessions.minted({ actor: "viewer", ...lists }, { ownPosts: true });
    await viewer.send("echo", "my own");
    await viewer.join("echo");
    expect(texts(await take(viewer, 4))).toEqual(["before", "mine", "theirs", "my own"]);
  });

  test("W7.13: a durable channel without a backstop is joined live, never durable, and says so", async () => {
    const bob = await sessions.minted(
      { actor: "bob2", subscribe: ["general", "team.>"] },
      { limits: { readTimeoutMs: 1000 } },
    );
    await space.delivery?.kill();
    for (const channel of ["general", "team.>"]) {
      const joined = await bob.join(channel);
      expect(joined).toMatchObject({ state: "joined live", class: "unknown" });
      expect(joined.shortfall).toContain("durable backstop unavailable");
      expect(bob.told).toContainEqual(expect.objectContaining({ type: "shortfall", subject: channel }));
    }
    space.delivery?.restart();
    await space.delivery?.ready();
    // With it back both become durable by themselves, the family too.
    await until("both are durable", () => bob.joined().every(({ state }) => state === "joined durable"), 40_000);
    expect(bob.joined().every(({ shortfall }) => shortfall === undefined)).toBe(true);
    expect(bob.told.filter(({ type }) => type === "joined-durable")).toHaveLength(2);
  }, 90_000);

  test("W8.07: history outside the read list is refused, and two reads at once both complete", async () => {
    const bob = await sessions.minted({ actor: "bob3", subscribe: ["hist"], publish: ["hist"] });
    await expect(bob.history("secrets")).rejects.toMatchObject({ code: "permission-denied" });
    await Promise.all(Array.from({ length: 700 }, (_, n) => bob.send("hist", String(n))));
    const both = await Promise.all([bob.history("hist"), bob.history("hist")]);
    expect(both.map((items) => items.length)).toEqual([700, 700]);
  });

  test("W7.05 W7.06: with nobody to ask, the broker itself refuses a join outside the read list", async () => {
    const bob = await sessions.minted({ actor: "alone", subscribe: ["team.>"] }, { limits: { readTimeoutMs: 1000 } });
    await space.delivery?.kill();
    await expect(bob.join("secrets")).rejects.toMatchObject({ code: "permission-denied", outcome: "not-executed" });
    expect(bob.joined()).toEqual([]);
    expect(await bob.join("team.one")).toMatchObject({ state: "joined live" });
    space.delivery?.restart();
    await space.delivery?.ready();
  }, 90_000);

  test("W7.07: with every daemon stopped a join still works, and the replay follows when one is back", async () => {
    const lists = { subscribe: ["late"], publish: ["late"] };
    const alice = await sessions.minted({ actor: "al", ...lists });
    const bob = await sessions.minted({ actor: "bo", ...lists }, { limits: { readTimeoutMs: 1000 } });
    await alice.send("late", "before");
    await Promise.all([space.provisioner.kill(), space.delivery?.kill()]);
    const joined = await bob.join("late");
    expect(joined).toMatchObject({ state: "joined live", class: "unknown" });
    expect(await joined.replayed).toMatchObject({ complete: false });
    await alice.send("late", "live");
    expect(texts(await take(bob, 1))).toEqual(["live"]);
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "replay-failed", channel: "late" }));
    space.delivery?.restart();
    await space.provisioner.restart();
    expect(await take(bob, 1)).toMatchObject([{ text: "before", historical: true }]);
  }, 90_000);
});
