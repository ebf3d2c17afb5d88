/** The short run of `test/long/member-kills.test.ts`: every kind of kill, a few times. */
import { expect, test } from "vitest";
import { runMembers } from "../support/member-run.ts";
import { drawFor } from "../support/seeded.ts";

test("W4.04 W7.11 W7.12 members, daemon and broker are killed: each post is shown to whom it is owed, and again only after a kill", async () => {
  const kills = { before: 2, after: 2, anywhere: 1, daemon: 2, broker: 1 };
  const ran = await runMembers({ members: 3, channels: 3, posts: 200, kills, dieWithin: 20 }, drawFor("member kills"));
  expect(ran.faults).toEqual([]);
  expect(ran.copies).toBeGreaterThan(ran.posts);
}, 600_000);
