/**
 * The number of member groups changes, and whoever changes it dies at each of its steps, with joins under way and one
 * group ahead of the others (`delivery.md` 3, decision H25). Counted from the stream.
 */
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { Death } from "../../shared/broker/write.ts";
import { type FanoutRig, startFanoutRig } from "../support/fanout-rig.ts";
import { hasDied, regroupingOf } from "../support/regrouping.ts";
import { markerOf } from "../support/stored-copies.ts";

vi.setConfig({ testTimeout: 300_000 });

let rig: FanoutRig;
beforeAll(async () => {
  rig = await startFanoutRig();
}, 60_000);
afterAll(async () => rig.stop());

const CHANGES = [
  [1, 3],
  [3, 2],
  [2, 2],
] as const;
const MOMENTS: readonly Death["when"][] = ["before", "after"];

test("A.03 it may die before or after each of its steps: it is resumed from what is stored, and each has each post once", async () => {
  const { written, allPassed, firstPassed, finished, memberOf, beginJoin, crowd } = regroupingOf(rig);
  const members = crowd("crowd");
  await members.gather(6);
  let [deaths, isOver] = [0, false];
  for (let at = 1; !isOver; at += 1) {
    isOver = true;
    for (const [from, to] of CHANGES) {
      for (const when of MOMENTS) {
        await finished(from);
        const cursor = await rig.frontier();
        await written(from, async () => allPassed(from, await members.say(2)));
        await firstPassed(from, await members.say(2));
        // In the group that is ahead, and in one that may not be: a join that the marker names, and one without copies.
        const late = [];
        for (const group of new Set([0, from - 1])) {
          for (const step of [3, 2] as const) {
            const who = await memberOf(group, from, `late${late.length}`);
            await beginJoin(who, "crowd", cursor, from, step);
            members.add(who, 4);
            late.push(who);
          }
        }
        // A seal that was set is an end that somebody must come to, also where the number stays.
        if (from === to) await hasDied(rig.regrouped(to + 1, { at: 1, when: "after" }));
        expect((await markerOf(rig.nc))?.state).toBe(from === to ? "sealed" : undefined);
        const died = await hasDied(rig.regrouped(to, { at, when }));
        deaths += Number(died);
        if (died) isOver = false;
        await finished(to);
        await written(to, async () => allPassed(to, await members.say(1)));
        await members.expectExact();
        for (const who of late) await members.expectJoined(who);
      }
    }
  }
  expect(deaths).toBeGreaterThan(2 * CHANGES.length * 2);
});
