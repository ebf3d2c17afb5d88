/**
 * The fan-out writer against a real broker: deaths between every two durable steps, writers that overtake each
 * other, parts, narrowed lists, mentions. Everything is counted from the streams.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Died } from "../../shared/broker/write.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { untilItEnds } from "../support/crash.ts";
import { type FanoutRig, OWNER, type Running, joining, leaving, startFanoutRig } from "../support/fanout-rig.ts";
import { delayed, holdAnswers } from "../support/held-answers.ts";
import { failure } from "../support/refusal.ts";
import { copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let rig: FanoutRig;
beforeAll(async () => {
  rig = await startFanoutRig();
});
afterAll(() => rig.stop());

const copies = async (who: Lifecycle): Promise<string[]> => (await copiesOf(rig.nc, who)).map(({ text }) => text);
const states = async (who: Lifecycle): Promise<string[]> =>
  (await rowsOf(rig.nc, who)).map(({ pattern, state }) => `${pattern} ${state}`);
/** Runs one writer for as long as the work takes. */
async function withWriter<T>(work: (running: Running) => Promise<T>): Promise<T> {
  const running = rig.run();
  try {
    return await work(running);
  } finally {
    await running.stop();
  }
}
const joined = (running: Running, who: Lifecycle, pattern: string) =>
  rig.frontier().then((cursor) => running.ask(joining(who, pattern, cursor)));

describe("W4.04 W8.10 a writer that dies between two durable steps", () => {
  test("W7.11 joins, posts and a leave: whoever goes on finishes them, nothing is missed and nothing comes twice", async () => {
    const [alice, bob] = [await rig.member("alice"), await rig.member("bob")];
    const cursor = await rig.frontier();
    await rig.post("c1", "a");
    let last = await rig.post("c1", "b");
    await rig.post("c2", "other");
    // One operation in the eyes of the crash harness: each run goes on where the one before died.
    const { deaths } = await untilItEnds(async (die) => {
      const running = rig.run({ die });
      const work = async (): Promise<void> => {
        await running.ask(joining(alice, "c1", cursor));
        await running.ask(joining(bob, "c1", cursor + 1));
        last = await rig.post("c1", `run ${die.at} ${die.when}`);
        await rig.passed(last);
        await running.ask(leaving(bob, "c1"));
        await running.ask(joining(bob, "c1", await rig.frontier()));
      };
      await Promise.race([work(), running.ended]);
      await running.stop();
    });
    // A claim, a batch, and three steps of the leave and of the join: before and after each.
    expect(deaths).toBeGreaterThanOrEqual(16);
    const stored = await copiesOf(rig.nc, alice);
    const sources = stored.map(({ source }) => source);
    expect(new Set(sources).size).toBe(sources.length);
    expect(sources).toEqual(sources.toSorted((a, b) => a - b));
    const posts = (await chatOf("c1")).filter(({ seq }) => seq > cursor);
    expect(stored.map(({ text }) => text)).toEqual(posts.map(({ text }) => text));
    const bobs = (await copiesOf(rig.nc, bob)).map(({ source }) => source);
    expect(new Set(bobs).size).toBe(bobs.length);
    expect(await states(alice)).toEqual(["c1 joined"]);
    expect(await states(bob)).toEqual(["c1 joined"]);
  }, 60_000);

  test("W7.11 a join that read back: its copies and its row, whenever it dies", async () => {
    const early = await rig.frontier();
    const wanted: string[] = [];
    for (let n = 0; n < 1200; n += 1) {
      wanted.push(`n${n}`);
      await rig.post(n % 2 === 0 ? "back.a" : "back.b", `n${n}`);
    }
    // The group has passed all of it before anybody joins.
    const frontier = await rig.frontier();
    await withWriter(() => rig.passed(frontier));
    for (let at = 1; at <= 5; at += 1) {
      for (const when of ["before", "after"] as const) {
        const who = await rig.member(`back_${at}_${when}`);
        const running = rig.run({ die: { at, when } });
        await Promise.race([running.ask(joining(who, "back.>", early)), running.ended]).catch(onlyDeath);
        await running.stop().catch(onlyDeath);
        await withWriter(async (next) => {
          await next.ask(joining(who, "back.>", early));
        });
        expect(await copies(who)).toEqual(wanted);
        expect(await states(who)).toEqual(["back.> joined"]);
      }
    }
  }, 60_000);
});

function onlyDeath(error: unknown): void {
  if (!(error instanceof Died)) throw error;
}

async function chatOf(channel: string): Promise<{ seq: number; text: string }[]> {
  const found: { seq: number; text: string }[] = [];
  const stream = spaceNames("main").chat;
  const { leaderNext } = await import("../../shared/broker/reads.ts");
  for (let seq = 1; ;) {
    const entry = await leaderNext(rig.nc, stream, spaceSubjects("main").chatRead(channel), seq);
    if (entry === undefined) return found;
    seq = entry.seq + 1;
    const { parts } = JSON.parse(new TextDecoder().decode(entry.data)) as { parts: { text: string }[] };
    found.push({ seq: entry.seq, text: parts[0]?.text ?? "" });
  }
}

test("W7.14 a channel that is joined beside its family with an older cursor brings no second copy", async () => {
  const who = await rig.member("overlap");
  await withWriter(async (running) => {
    const cursor = await rig.frontier();
    await rig.post("lap.a", "before the family");
    await running.ask(joining(who, "lap.>", await rig.frontier()));
    await rig.passed(await rig.post("lap.a", "family's"));
    await running.ask(joining(who, "lap.a", cursor));
    await rig.passed(await rig.post("lap.a", "both"));
  });
  expect(await copies(who)).toEqual(["family's", "before the family", "both"]);
});

describe("W8.11 the marker is the fence", () => {
  test("a writer that was overtaken stores nothing more and says so; the next has every post once", async () => {
    const who = await rig.member("fenced");
    const first = rig.run();
    await joined(first, who, "fence");
    const second = rig.run();
    await until("the second has claimed", () => second.events.some(({ type }) => type === "claimed"));
    for (let n = 0; n < 50; n += 1) await rig.post("fence", `n${n}`);
    expect(await failure(first.ended)).toMatchObject({ code: "conflict" });
    await rig.passed(await rig.frontier());
    await second.stop();
    expect(await copies(who)).toEqual(Array.from({ length: 50 }, (_, n) => `n${n}`));
  });

  test("W8.11 two posts with one id both reach the member; an id that is empty changes nothing", async () => {
    const who = await rig.member("same");
    await withWriter(async (running) => {
      await joined(running, who, "ids");
      await rig.post("ids", "one", { id: "same" });
      await rig.post("ids", "two", { id: "same" });
      await rig.post("ids", "three", { id: "" });
      await rig.passed(await rig.post("ids", "four", { id: "" }));
    });
    expect(await copies(who)).toEqual(["one", "two", "three", "four"]);
  });

  test("W4.11 what nobody could show is passed over, and the line moves on", async () => {
    const who = await rig.member("poisoned");
    await withWriter(async (running) => {
      await joined(running, who, "poison");
      const subject = spaceSubjects("main").chat(principal(OWNER, "poster"), "poison");
      for (const bytes of ["", "{", "[]", JSON.stringify({ id: 7 }), "\u0000"]) await rig.nc.request(subject, bytes);
      await rig.passed(await rig.post("poison", "good"));
      expect(running.events.filter(({ type }) => type === "unreadable")).toHaveLength(5);
    });
    expect(await copies(who)).toEqual(["good"]);
  });

  test("a post that covers more than a batch is written in parts, whoever dies between them", async () => {
    const members = await Promise.all(Array.from({ length: 1200 }, (_, n) => rig.member(`many_${n}`)));
    await withWriter(async (running) => {
      const cursor = await rig.frontier();
      await Promise.all(members.map((who) => running.ask(joining(who, "crowd", cursor))));
    });
    let last = 0;
    for (let n = 0; n < 3; n += 1) last = await rig.post("crowd", `n${n}`);
    for (const when of ["before", "after"] as const) {
      for (const at of [2, 3]) {
        const dying = rig.run({ die: { at, when } });
        await dying.ended.catch(onlyDeath);
      }
    }
    await withWriter(() => rig.passed(last));
    const counted = await Promise.all(members.map(copies));
    expect(counted.filter((list) => list.join() !== "n0,n1,n2")).toEqual([]);
    expect((await markerOf(rig.nc))?.part).toBeUndefined();
  }, 120_000);
});

test("W3.05 W7.11 a channel of 4096 characters, and a member of 1,000 channels: each post has its one copy", async () => {
  const who = await rig.member("wide");
  const long = `${"x".repeat(4000)}.${"y".repeat(95)}`;
  expect(long).toHaveLength(4096);
  const channels = [long, ...Array.from({ length: 1000 }, (_, n) => `wide.c${n}`)];
  await withWriter(async (running) => {
    const cursor = await rig.frontier();
    await Promise.all(channels.map((channel) => running.ask(joining(who, channel, cursor))));
    for (const channel of channels) await rig.post(channel, channel.slice(0, 20));
    await rig.passed(await rig.frontier());
  });
  expect(await copies(who)).toEqual(channels.map((channel) => channel.slice(0, 20)));
}, 120_000);

describe("W8.10 authority is the one of now", () => {
  test("W7.06 a narrowed list takes back stored copies and the membership, and nothing more is written", async () => {
    const who = await rig.member("narrowed", ["open.>", "secret.>"]);
    const source = await withWriter(async (running) => {
      await joined(running, who, "open.>");
      await joined(running, who, "secret.a");
      await rig.post("secret.a", "s1");
      await rig.post("open.b", "o1");
      await rig.passed(await rig.post("secret.a", "s2"));
      expect(await copies(who)).toEqual(["s1", "o1", "s2"]);
      await rig.list(who, ["open.>"]);
      await until("it is swept", async () => (await copies(who)).join() === "o1");
      await rig.post("secret.a", "s3");
      return rig.post("open.b", "o2");
    });
    await withWriter(() => rig.passed(source));
    expect(await copies(who)).toEqual(["o1", "o2"]);
    expect(await states(who)).toEqual(["open.> joined", "secret.a left"]);
  });

  test("W7.06 a list that is narrowed while a batch is under way: once the marker names it, no copy is left and none comes", async () => {
    const [who, other] = [await rig.member("behind", ["secret.>"]), await rig.member("crowd", ["crowd.>"])];
    await withWriter(async (running) => {
      await joined(running, who, "secret.>");
      await joined(running, other, "crowd.>");
    });
    let last = 0;
    for (let some = 0; some < 60; some += 1) {
      await rig.backlog("crowd.a", 49);
      last = await rig.post("secret.a", "s");
    }
    // Each batch holds a few copies for it, and is stored well after whoever looks for copies could have looked.
    const running = rig.run({ through: delayed(rig.nc, spaceSubjects("main").dlvMarker(0), 250) });
    await until("copies are being written", () => running.events.some(({ type }) => type === "copies"));
    await rig.list(who, []);
    const narrowed = (await rig.listed(who))?.seq ?? 0;
    await until("the marker names the list", async () => ((await markerOf(rig.nc))?.acl ?? 0) >= narrowed);
    expect((await markerOf(rig.nc))?.sequence).toBeLessThan(last);
    expect(await copies(who)).toEqual([]);
    await rig.passed(last);
    await running.stop();
    expect(await copies(who)).toEqual([]);
    expect(await states(who)).toEqual(["secret.> left"]);
  });

  test("a list that was narrowed while no writer ran is swept by the next, also when that one dies", async () => {
    const who = await rig.member("asleep", ["open.>", "secret.>"]);
    await withWriter(async (running) => {
      await joined(running, who, "secret.>");
      await joined(running, who, "open.>");
      await rig.post("secret.a", "s1");
      await rig.passed(await rig.post("open.a", "o1"));
    });
    await rig.list(who, ["open.>"]);
    await rig.post("secret.a", "s2");
    for (let at = 1; at <= 3; at += 1) {
      for (const when of ["before", "after"] as const) {
        const dying = rig.run({ die: { at, when } });
        await Promise.race([dying.ended, rig.post("open.a", `o ${at} ${when}`).then((seq) => rig.passed(seq))]).catch(
          onlyDeath,
        );
        await dying.stop().catch(onlyDeath);
      }
    }
    const last = await rig.post("open.a", "end");
    await withWriter(() => rig.passed(last));
    const found = await copies(who);
    expect(found.filter((text) => text.startsWith("s"))).toEqual([]);
    expect(found.at(-1)).toBe("end");
    expect(found).toHaveLength(8);
    expect(await states(who)).toEqual(["open.> joined", "secret.> left"]);
  });

  test("a lifecycle that ended is owed nothing more, and keeps nothing", async () => {
    const who = await rig.member("ended");
    await withWriter(async (running) => {
      await joined(running, who, "ending");
      await rig.passed(await rig.post("ending", "one"));
      await rig.unlist(who);
      await until("nothing is left", async () => (await copies(who)).length === 0);
      await rig.passed(await rig.post("ending", "two"));
      expect(await failure(joined(running, who, "ending"))).toMatchObject({ code: "permission-denied" });
    });
    expect(await copies(who)).toEqual([]);
  });

  test("W7.10 a join that is asked for after its list was stored is judged by that list, whatever is being read then", async () => {
    const who = await rig.member("hurried", ["before"]);
    const held = holdAnswers(rig.nc, "$JS.API.STREAM.MSG.GET.KV_cotal_acl_main");
    const running = rig.run({ through: held.nc });
    try {
      await until("it has claimed", () => running.events.some(({ type }) => type === "claimed"));
      // The writer has read the lists, and has not looked at the requests.
      await held.hold();
      await rig.list(who, ["after"]);
      const asked = running.ask(joining(who, "after", await rig.frontier()));
      held.release();
      expect(await asked).toMatchObject({ channel: "after", state: "joined" });
    } finally {
      held.release();
      await running.stop();
    }
  });

  test("W7.03 a channel that becomes live is copied no more, and again when it is durable", async () => {
    const who = await rig.member("classes");
    await withWriter(async (running) => {
      await joined(running, who, "turn.>");
      await rig.passed(await rig.post("turn.a", "one"));
      await rig.config("turn.a", { deliveryClass: "live" });
      await rig.post("turn.a", "two");
      await rig.passed(await rig.post("turn.b", "b"));
      await rig.config("turn.a", { deliveryClass: "durable" });
      await rig.passed(await rig.post("turn.a", "three"));
      await rig.config("turn.a", { deliveryClass: "live" });
      expect(await failure(joined(running, who, "turn.a"))).toMatchObject({ code: "failed-precondition" });
    });
    expect(await copies(who)).toEqual(["one", "b", "three"]);
  });
});

describe("W4.06 W4.07 mentions on a live channel", () => {
  test("W6.03 go to the one bearer of the name who is here and may read the channel, and to nobody else", async () => {
    await rig.config("loud", { deliveryClass: "live" });
    const ann = await rig.member("Ann", ["loud"]);
    const out = await rig.member("outsider", ["elsewhere"]);
    const [bob1, bob2] = [await rig.member("bob1", [">"]), await rig.member("bob2", [">"])];
    await rig.list(bob1, [">"], "Bob");
    await rig.list(bob2, [">"], "bob");
    await withWriter(async (running) => {
      // A group's very first writer begins with what is posted from then on.
      await until("it writes", () => running.events.some(({ type }) => type === "claimed"));
      await rig.post("loud", "nobody");
      await rig.post("loud", "ann", { mentions: ["ann", "outsider", "unknown"] });
      await rig.post("loud", "both away", { mentions: ["bob"] });
      await rig.passed(await rig.frontier());
      await rig.present(bob2);
      await rig.present(bob1, "offline");
      await rig.post("loud", "one is here", { mentions: ["BOB", "bob"] });
      await rig.passed(await rig.frontier());
      await rig.present(bob1);
      await rig.passed(await rig.post("loud", "both here", { mentions: ["bob"] }));
      expect(running.events.filter(({ type }) => type === "unresolved")).toHaveLength(3);
    });
    expect(await copiesOf(rig.nc, ann)).toMatchObject([{ text: "ann", kind: "mention", channel: "loud" }]);
    expect(await copies(out)).toEqual([]);
    expect(await copies(bob2)).toEqual(["one is here"]);
    expect(await copies(bob1)).toEqual([]);
  });
});

test("H64 a flood of posts that name many bearers asks once for each who is here, and not for each post", async () => {
  await rig.config("flooded", { deliveryClass: "live" });
  const twins = await Promise.all([rig.member("twin_a", ["flooded"]), rig.member("twin_b", ["flooded"])]);
  for (const twin of twins) await rig.list(twin, ["flooded"], "twin");
  const [here] = twins;
  await rig.present(here);
  await withWriter(async () => rig.passed(await rig.post("flooded", "before")));
  const asked = rig.nc.subscribe(`$JS.API.STREAM.MSG.GET.KV_${spaceNames("main").bucket.presence}`);
  let last = 0;
  for (let n = 0; n < 200; n += 1) last = await rig.post("flooded", `${n}`, { mentions: ["twin"] });
  await withWriter(() => rig.passed(last));
  // They lay in one page; a look at each post would have been 400 questions.
  expect(asked.getReceived()).toBeGreaterThan(0);
  expect(asked.getReceived()).toBeLessThanOrEqual(20);
  asked.unsubscribe();
  expect(await copies(here)).toHaveLength(200);
});

test("W8.23 groups share the members, and each member is in one", async () => {
  // The marker of the other space is the only one of its number.
  const rig = await startFanoutRig();
  const members = await Promise.all(Array.from({ length: 12 }, (_, n) => rig.member(`grouped_${n}`)));
  const three = [0, 1, 2].map((group) => rig.run({ group, groups: 3 }));
  const cursor = await rig.frontier();
  await Promise.all(members.map(async (who) => three[rig.groupOf(who, 3)]?.ask(joining(who, "shared", cursor))));
  await rig.post("shared", "one");
  const last = await rig.post("shared", "two");
  await Promise.all([0, 1, 2].map((group) => rig.passed(last, group)));
  await Promise.all(three.map((running) => running.stop()));
  expect(new Set(members.map((who) => rig.groupOf(who, 3))).size).toBeGreaterThan(1);
  for (const who of members) {
    expect((await copiesOf(rig.nc, who)).map(({ text }) => text)).toEqual(["one", "two"]);
  }
  await rig.stop();
});

describe("W7.11 joins that read back again and again", () => {
  test("are refused after twice what one may read, the loop goes on, and a fresh frontier is taken at once", async () => {
    const [greedy, other] = [await rig.member("greedy"), await rig.member("other")];
    const cursor = await rig.frontier();
    const [subject, words] = [rig.posterSubject("far.a.b.c"), JSON.stringify({ id: "x" })];
    const posts = Array.from({ length: 9000 }, () => rig.nc.publish(subject, words));
    await rig.nc.flush();
    await until("all are stored", async () => (await rig.frontier()) === cursor + posts.length);
    await withWriter(async (running) => {
      await rig.passed(await rig.post("elsewhere", "the position is behind them"));
      const join = (pattern: string) => running.ask(joining(greedy, pattern, cursor));
      expect([await join("far.a.b.>"), await join("far.a.>")]).toMatchObject([
        { state: "joined" },
        { state: "joined" },
      ]);
      expect(await failure(join("far.>"))).toMatchObject({ code: "resource-exhausted" });
      expect(await joined(running, other, "far.>")).toMatchObject({ state: "joined" });
      expect(await joined(running, greedy, "far.>")).toMatchObject({ state: "joined" });
    });
  }, 60_000);
});
