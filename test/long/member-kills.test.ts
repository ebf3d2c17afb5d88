/**
 * Nothing is lost and nothing is shown twice (§4, §7, §8): twenty member processes on five channels, more than 10,000
 * posts, a hundred kills of members before and after they show a message, of the daemon between two of its durable
 * steps, and of the broker. The checker counts from the streams.
 */
import { expect, test } from "vitest";
import { runMembers } from "../support/member-run.ts";
import { drawFor } from "../support/seeded.ts";

test("W4.04 W7.11 W7.12 100 kills, 20 member processes, 5 channels, 10,000 posts: each is shown to whom it is owed", async () => {
  const kills = { before: 25, after: 25, anywhere: 20, daemon: 25, broker: 5 };
  const size = { members: 20, channels: 5, posts: 10_000, kills, dieWithin: 2000 };
  const ran = await runMembers(size, drawFor("member kills"));
  const { faults, ...counts } = ran;
  process.stdout.write(`${JSON.stringify(counts)}\n`);
  expect(faults).toEqual([]);
  expect(ran.posts).toBeGreaterThan(10_000);
  expect(ran.kills.daemon).toBeGreaterThanOrEqual(25);
  expect(Object.values(ran.kills).reduce((sum, count) => sum + count, 0)).toBeGreaterThanOrEqual(100);
}, 3_600_000);
