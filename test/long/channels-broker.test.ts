/**
 * The channel algebra against the broker that has the last word (field case 10): what a subscription
 * receives, and what a credential's read list lets it subscribe to.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NatsConnection, connect } from "@nats-io/transport-node";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { contains, containedIn, covers, matches, overlap } from "../../shared/protocol/base/channels.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { formatCreds, parseCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { accountKeys, freshHolder, frontRoot } from "../support/holders.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { createProber } from "../support/probe.ts";
import { type Draw, drawFor } from "../support/seeded.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

/** Up to `most` segments of a small alphabet, so that two patterns often meet. */
function somePattern({ int, chance, pick }: Draw, most: number, letters: readonly string[]): string {
  const parts = Array.from({ length: int(0, most - 1) }, () => (chance(0.3) ? "*" : pick(letters)));
  return [...parts, chance(0.4) ? ">" : chance(0.3) ? "*" : pick(letters)].join(".");
}

function someChannel({ int, pick }: Draw, most: number, letters: readonly string[]): string {
  return Array.from({ length: int(1, most) }, () => pick(letters)).join(".");
}

function distinct(count: number, make: () => string): string[] {
  const found = new Set<string>();
  while (found.size < count) found.add(make());
  return [...found];
}

/** All channels of up to `depth` segments. */
function universe(depth: number, letters: readonly string[]): string[] {
  const all: string[] = [];
  for (let level = [""], at = 0; at < depth; at += 1) {
    level = level.flatMap((head) => letters.map((tail) => (head === "" ? tail : `${head}.${tail}`)));
    all.push(...level);
  }
  return all;
}

describe("patterns and channels", () => {
  const LEAD = "probe.";
  let broker: TestBroker;
  let nc: NatsConnection;
  beforeAll(async () => {
    broker = await startBroker();
    nc = await connect({ servers: broker.url });
  });
  afterAll(async () => {
    await nc.close();
    await broker.stop();
  });

  /** Which of the channels the broker hands to a subscription of each pattern. */
  async function delivered(patterns: readonly string[], channels: readonly string[]): Promise<Set<string>[]> {
    const got = patterns.map(() => new Set<string>());
    const subscriptions = patterns.map((pattern, index) =>
      nc.subscribe(LEAD + pattern, {
        callback: (error, { subject }) => {
          if (error === null) got[index]?.add(subject.slice(LEAD.length));
        },
      }),
    );
    for (const channel of channels) nc.publish(LEAD + channel);
    await nc.flush();
    for (const subscription of subscriptions) subscription.unsubscribe();
    return got;
  }

  test("W3.05: 10,000 random pairs of a pattern and a channel are matched as the broker matches them", async () => {
    const draw = drawFor("pattern and channel");
    const wrong: string[] = [];
    let pairs = 0;
    let matched = 0;
    // From one letter, where nearly all meet, to words of which some begin with others.
    const alphabets = [["a"], ["a", "b"], ["a", "b", "z"], ["team", "teamx", "te-am", "_", "TEAM", "0"]];
    while (pairs < 10_000) {
      const letters = draw.pick(alphabets);
      const patterns = Array.from({ length: 20 }, () => somePattern(draw, 6, letters));
      const channels = distinct(Math.min(20, letters.length ** 3 + 4), () => someChannel(draw, 6, letters));
      const got = await delivered(patterns, channels);
      for (const [index, pattern] of patterns.entries()) {
        for (const channel of channels) {
          pairs += 1;
          const ours = matches(pattern, channel);
          if (ours) matched += 1;
          if (got[index]?.has(channel) !== ours) wrong.push(`${pattern} ~ ${channel}: ours ${ours}`);
        }
      }
    }
    expect(wrong).toEqual([]);
    expect(pairs).toBeGreaterThanOrEqual(10_000);
    // A matcher that always says the same would pass a lopsided sample.
    expect(Math.min(matched, pairs - matched)).toBeGreaterThan(1000);
  }, 60_000);

  test("W9.04: of 10,000 pairs of patterns one contains another exactly where the broker hands it everything", async () => {
    const draw = drawFor("pattern and pattern");
    // Patterns of up to five segments over a and b: six levels with a third letter hold a witness
    // of every difference.
    const patterns = distinct(100, () => somePattern(draw, 5, ["a", "b"]));
    const got = await delivered(patterns, universe(6, ["a", "b", "z"]));
    const wrong: string[] = [];
    let contained = 0;
    for (const [outerAt, outer] of patterns.entries()) {
      for (const [innerAt, inner] of patterns.entries()) {
        const broader = got[outerAt] ?? new Set();
        const all = [...(got[innerAt] ?? [])].every((channel) => broader.has(channel));
        if (contains(outer, inner)) contained += 1;
        if (contains(outer, inner) !== all) wrong.push(`${outer} contains ${inner}: the broker says ${all}`);
      }
    }
    expect(wrong).toEqual([]);
    expect(contained).toBeGreaterThan(patterns.length);
  }, 60_000);
});

describe("read lists", () => {
  const S = "main";
  let space: TestSpace;
  beforeAll(async () => {
    space = await startSpace({ spaces: [S] });
  }, 60_000);
  afterAll(() => space.stop());

  /** A credential with exactly this read list, or why there is none. */
  async function reader(acl: readonly string[]): Promise<NatsConnection | CotalError> {
    const key = newKey("user");
    try {
      const { jwt } = await mintUser({
        profile: "agent",
        account: Account.Front,
        ...accountKeys(space, S, Account.Front),
        userKey: key.publicKey,
        expires: Math.floor(Date.now() / 1000) + 600,
        limits: { subs: 1000, payload: 10_000 },
        scope: { space: S, ...freshHolder("local", "reader"), allowSubscribe: acl, allowPublish: [], ...NO_COMMANDS },
      });
      return await space.connect(parseCreds(formatCreds(jwt, key)));
    } catch (thrown) {
      if (thrown instanceof CotalError) return thrown;
      throw thrown;
    }
  }

  test("W9.04, W7.06: 500 subscriptions under random read lists are accepted as containedIn says, and bring what the list covers", async () => {
    const draw = drawFor("read lists");
    const letters = ["a", "b"];
    const subjects = spaceSubjects(S);
    const sender = `${"u_".padEnd(28, "s")}.poster`;
    const channels = universe(4, ["a", "b", "z"]);
    const root = await frontRoot(space, S);
    const wrong: string[] = [];
    let [asked, accepted, wider, cut, unmintable] = [0, 0, 0, 0, 0];
    while (asked < 500) {
      // One in ten lists is the trap itself.
      const trap = asked % 100 === 0;
      const acl = trap ? ["a.*", "b"] : distinct(draw.int(1, 3), () => somePattern(draw, 3, letters));
      const nc = await reader(acl);
      if (nc instanceof CotalError) {
        // Two entries of which the paired deny of one would cut the other: refused before the broker.
        if (nc.code !== "bad-request") wrong.push(`${acl.join(" ")}: ${nc.code}`);
        unmintable += 1;
        continue;
      }
      const patterns = trap
        ? ["a.>", "a.*", ">", "a", "b", "b.>", "a.b", "*.*", "*", "a.*.>"]
        : distinct(10, () => somePattern(draw, 3, letters));
      const refused = new Set(
        (
          await createProber(nc).refused(
            patterns.map((pattern) => ({ op: "sub" as const, subject: subjects.chatRead(pattern) })),
          )
        ).map(({ subject }) => subject),
      );
      const open = patterns.filter((pattern) => !refused.has(subjects.chatRead(pattern)));
      const got = new Map(open.map((pattern) => [pattern, new Set<string>()]));
      for (const [pattern, into] of got) {
        nc.subscribe(subjects.chatRead(pattern), {
          callback: (error, { subject }) => {
            if (error === null) into.add(subject.split(".").slice(5).join("."));
          },
        });
      }
      await nc.flush();
      for (const channel of channels) root.publish(`cotal.${S}.chat.${sender}.${channel}`);
      await root.flush();
      await nc.flush();
      for (const pattern of patterns) {
        asked += 1;
        const inside = containedIn(acl, pattern) !== undefined;
        const is = got.get(pattern);
        if (is !== undefined) accepted += 1;
        if (!inside && acl.some((entry) => overlap(entry, pattern))) wider += 1;
        // The broker takes `a.>` under `a.*`; the paired deny is why it brings no more than `a.*` does.
        const isCut = is !== undefined && !inside && isTailOf(acl, pattern);
        if (isCut) cut += 1;
        if ((is !== undefined) !== (inside || isCut)) wrong.push(`[${acl.join(" ")}] ${pattern}: inside ${inside}`);
        const want = channels.filter((channel) => matches(pattern, channel) && covers(acl, channel));
        if (is !== undefined && [...is].toSorted().join() !== want.toSorted().join()) {
          wrong.push(`[${acl.join(" ")}] ${pattern} brings ${[...is].join(" ")}, not ${want.join(" ")}`);
        }
      }
      await nc.close();
    }
    console.log(
      `read lists: ${asked} asked, ${accepted} accepted, ${cut} of them cut, ${wider} too wide, ${unmintable} lists refused`,
    );
    expect(wrong).toEqual([]);
    expect(accepted).toBeGreaterThan(50);
    expect(wider).toBeGreaterThan(50);
    expect(cut).toBeGreaterThanOrEqual(5);
  }, 120_000);
});

/** `>` where an entry has `*`: the one form that the broker lets through a list that does not contain it. */
function isTailOf(acl: readonly string[], pattern: string): boolean {
  if (!pattern.endsWith(">")) return false;
  return acl.some((entry) => entry.endsWith("*") && contains(entry, `${pattern.slice(0, -1)}*`));
}
