/**
 * The number of member groups changes (`delivery.md` 3, decision H25): nothing is missed and nothing comes twice, wherever
 * it dies, and whoever still writes for the old number. Counted from the stream.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Death } from "../../shared/broker/write.ts";
import { isCode } from "../../shared/broker/errors.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type FanoutRig, joining, startFanoutRig } from "../support/fanout-rig.ts";
import { hasDied, regroupingOf, upTo } from "../support/regrouping.ts";
import { copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 180_000 });

const MANY = 60_000;

let rig: FanoutRig;
let around: ReturnType<typeof regroupingOf>;
beforeAll(async () => {
  rig = await startFanoutRig();
  around = regroupingOf(rig);
  // There is a number once somebody has begun.
  await around.written(1, async () => rig.passed(await rig.post("begin", "here")));
}, 60_000);
afterAll(async () => rig.stop());

const texts = async (who: Lifecycle, of = rig) => (await copiesOf(of.nc, who)).map(({ text }) => text);
const MOMENTS: readonly Death["when"][] = ["before", "after"];

test("A.03 two at once that want another number each: one wins each time, and each has each post once", async () => {
  const { crowd, written, allPassed, firstPassed, finished } = around;
  const members = crowd("both");
  await finished(1);
  await members.gather(6);
  let now = 1;
  for (const [one, other] of [
    [4, 3],
    [2, 5],
    [1, 6],
  ] as const) {
    await firstPassed(now, await members.say(3));
    await Promise.all([one, other].map((wanted) => rig.regrouped(wanted).catch(() => undefined)));
    const settled = await markerOf(rig.nc);
    now = settled?.state === undefined && settled?.of !== now ? (settled?.of ?? 0) : one;
    await finished(now);
    expect([one, other]).toContain(now);
    const markers = await Promise.all(upTo(now).map((group) => markerOf(rig.nc, group)));
    expect(new Set(markers.map((row) => JSON.stringify([row?.of, row?.state, row?.sequence]))).size).toBe(1);
    await written(now, async () => allPassed(now, await members.say(2)));
    await members.expectExact();
  }
});

describe("A.03 W7.11 a join whose copies are written under the old number has each of them once", () => {
  test("where whoever changes the number dies before or after each step", async () => {
    const { crowd, written, allPassed, finished, beginJoin } = around;
    const members = crowd("named");
    let [deaths, isOver] = [0, false];
    for (let at = 1; !isOver; at += 1) {
      for (const when of MOMENTS) {
        await finished(1);
        const cursor = await rig.frontier();
        await written(1, async () => allPassed(1, await members.say(2)));
        const who = await rig.member(`named_${at}_${when}`);
        await beginJoin(who, "named", cursor, 1, 3);
        members.add(who, 2);
        // The one group is as far as any: but for the join, nothing would be left to do.
        expect((await markerOf(rig.nc))?.joins).toHaveLength(1);
        isOver = !(await hasDied(rig.regrouped(2, { at, when })));
        deaths += Number(!isOver);
        await finished(2);
        await written(2, async () => allPassed(2, await members.say(1)));
        await members.expectExact();
        await members.expectJoined(who);
      }
    }
    // The seal, the claim, the joins named, the row, the level, the new markers.
    expect(deaths).toBe(2 * 6);
  });

  test("where one who comes late writes them while another is about to begin with the new number, and dies at each step", async () => {
    const { crowd, written, allPassed, firstPassed, finished, memberOf } = around;
    const members = crowd("late");
    for (let [at, isOver] = [1, false]; !isOver; at += 1) {
      await finished(2);
      const cursor = await rig.frontier();
      await written(2, async () => allPassed(2, await members.say(2)));
      await firstPassed(2, await members.say(1));
      // Both are sealed, and the second is behind. So the late one finds them, and stands still.
      expect(await hasDied(rig.regrouped(3, { at: 2, when: "after" }))).toBe(true);
      const [hasRead, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const wanted = async () => {
        hasRead.resolve();
        await mayGoOn.promise;
        return 3;
      };
      const late = hasDied(rig.regrouped(wanted, { at, when: "after" }).catch(onlyLost));
      await hasRead.promise;
      // Another one brings the second as far as the first, and ends there.
      await expect(rig.regrouped(endingAt(2))).rejects.toThrow("ended");
      // A writer of the old number, which stood still since before the seal, begins a join.
      const who = await memberOf(1, 2, `late${at}`);
      const row = { v: 1, pattern: "late", state: "joining", join: cursor };
      await rig.put(spaceNames("main").bucket.members, ledgerKey.member(who.principal, who.uid, "late"), row);
      members.add(who, 3);
      // A third one has found them level. The late one goes on, before the third looks once more.
      await rig.regrouped(async () => {
        mayGoOn.resolve();
        isOver = !(await late);
        return 3;
      });
      await finished(3);
      await written(3, async () => allPassed(3, await members.say(1)));
      await members.expectExact();
      await members.expectJoined(who);
    }
  });
});

test("A.03 W8.10 a list that one group has swept for, and another one has not, is swept for by the new ones", async () => {
  const { written, allPassed, finished, memberOf } = around;
  await finished(2);
  const [one, other] = [await memberOf(0, 2, "one"), await memberOf(1, 2, "other")];
  const posted = await written(2, async (writers) => {
    const cursor = await rig.frontier();
    for (const [n, who] of [one, other].entries()) await writers[n]?.ask(joining(who, "narrow", cursor));
    const seq = await rig.post("narrow", "secret");
    await allPassed(2, seq);
    return seq;
  });
  expect(await texts(other)).toEqual(["secret"]);
  await rig.list(other, ["elsewhere"]);
  // The first group sees a later list, and the second sees neither.
  await rig.list(one, [">"]);
  const [narrowed, later] = [(await rig.listed(other))?.seq ?? 0, (await rig.listed(one))?.seq ?? 0];
  const first = rig.run({ group: 0, groups: 2 });
  await until("the first group has swept", async () => ((await markerOf(rig.nc, 0))?.acl ?? 0) >= later, MANY);
  await first.stop();
  // They are level: nobody writes for the old number any more, and so nobody of it sweeps.
  expect(await markerOf(rig.nc, 0)).toMatchObject({ sequence: posted });
  expect(await markerOf(rig.nc, 1)).toMatchObject({ sequence: posted });
  expect((await markerOf(rig.nc, 1))?.acl).toBeLessThan(narrowed);
  await finished(1);
  await written(1, async () => allPassed(1, await rig.post("narrow", "last")));
  expect(await texts(one)).toEqual(["secret", "last"]);
  expect(await texts(other)).toEqual([]);
  expect(await rowsOf(rig.nc, other)).toMatchObject([{ state: "left" }]);
});

test("A.03 W8.11 a writer of the old number that was stopped in front of its batch stores nothing of it, and can't claim any more", async () => {
  const own = await startFanoutRig();
  const who = await own.member("stopped");
  const first = own.run();
  await first.ask(joining(who, "z", await own.frontier()));
  await first.stop();
  const wanted = Array.from({ length: 30 }, (_, n) => `z${n}`);
  for (const words of wanted) await own.post("z", words);
  // Its claim is the first step, and its copies are the second.
  const script = join(import.meta.dirname, "..", "support", "fanout-child.ts");
  const child = spawn(process.execPath, [script, own.broker.url, "2", "stop"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    let heard = "";
    child.stdout.on("data", (bytes: Buffer) => (heard += bytes.toString()));
    const state = () => readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ").at(-1)?.[0];
    await until("it stands still", () => state() === "T", MANY);
    expect(await own.regrouped(2)).toBe(2);
    const group = own.groupOf(who, 2);
    const next = own.run({ group, groups: 2 });
    await own.passed(await own.post("z", "after"), group);
    child.kill("SIGCONT");
    await until("it has found the seal", () => heard.includes("failed-precondition"), MANY);
    expect(heard.split("\n").slice(0, 2)).toEqual(["conflict", "failed-precondition"]);
    await own.passed(await own.post("z", "more"), group);
    await next.stop();
    expect(await texts(who, own)).toEqual([...wanted, "after", "more"]);
  } finally {
    child.kill("SIGKILL");
    await own.stop();
  }
});

/** The setting, which can't be read any more the n-th time. */
function endingAt(times: number): () => Promise<number> {
  let asked = 0;
  return () => ((asked += 1) < times ? Promise.resolve(3) : Promise.reject(new Error("ended")));
}

/** Whoever comes late may lose. */
function onlyLost(thrown: unknown): void {
  if (!isCode(thrown, ErrorCode.Conflict)) throw thrown;
}
