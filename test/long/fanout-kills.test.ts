/**
 * Nothing missed and nothing twice, whoever dies (§4, §7, §8): writers that kill themselves with SIGKILL between two
 * durable steps, one after the other, another writer beside them that changes memberships and overtakes them, and
 * posts all the while. The checker counts from the streams.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { leaderNext } from "../../shared/broker/reads.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { Membership } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { type FanoutRig, joining, leaving, startFanoutRig } from "../support/fanout-rig.ts";
import { copiesOf } from "../support/stored-copies.ts";
import type { Change } from "../../services/delivery/fanout/requests.ts";

const CHILD = join(import.meta.dirname, "..", "support", "fanout-child.ts");
const POSTS = 10_000;
const MEMBERS = 20;
const CHANNELS = ["kill.a", "kill.b", "kill.c", "kill.d", "kill.e"];
const LEAST_KILLS = 25;

let rig: FanoutRig;
const children = new Set<ChildProcess>();
beforeAll(async () => {
  rig = await startFanoutRig();
});
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
  await rig.stop();
});

/** Resolves with the signal that ended it. */
function writer(step: number, when: string): { child: ChildProcess; ended: Promise<NodeJS.Signals | null> } {
  const child = spawn(process.execPath, [CHILD, rig.broker.url, String(step), when], { stdio: "ignore" });
  children.add(child);
  const ended = new Promise<NodeJS.Signals | null>((resolve) => {
    child.once("exit", (_, signal) => {
      children.delete(child);
      resolve(signal);
    });
  });
  return { child, ended };
}

type Interval = { readonly join: number; leave: number };

test("W4.04 W7.11 W7.12 10,000 posts, 20 members, 5 channels, kills between two durable steps: every copy once", async () => {
  const members = await Promise.all(Array.from({ length: MEMBERS }, (_, n) => rig.member(`k${n}`)));
  const intervals = new Map<string, Interval[]>();
  const place = (who: Lifecycle, channel: string): string => `${who.key} ${channel}`;
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };

  /** Asks until somebody's answer comes: a writer that is overtaken answers nobody. */
  const change = async (wanted: () => Promise<Change>): Promise<Membership | undefined> => {
    for (;;) {
      const running = rig.run();
      try {
        const asked = running.ask(await wanted());
        const late = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 2000));
        asked.catch(() => undefined);
        const got = await Promise.race([asked, late]);
        if (got !== undefined) return got;
      } catch (thrown) {
        if (toCotalError(thrown).code !== "conflict") throw thrown;
      } finally {
        await running.stop().catch(() => undefined);
      }
    }
  };
  const joinOne = async (who: Lifecycle, channel: string): Promise<void> => {
    const row = await change(async () => joining(who, channel, await rig.frontier()));
    const list = intervals.get(place(who, channel)) ?? [];
    intervals.set(place(who, channel), [...list, { join: row?.join ?? 0, leave: Infinity }]);
  };
  const leaveOne = async (who: Lifecycle, channel: string): Promise<void> => {
    const row = await change(() => Promise.resolve(leaving(who, channel)));
    const last = intervals.get(place(who, channel))?.at(-1);
    if (last !== undefined) last.leave = row?.leave ?? Number.NaN;
  };
  for (const [n, who] of members.entries()) {
    for (const channel of CHANNELS) if ((n + channel.length + random(3)) % 3 !== 0) await joinOne(who, channel);
  }

  let kills = 0;
  let posted = 0;
  const posting = async (): Promise<void> => {
    while (posted < POSTS || kills < LEAST_KILLS) {
      const burst = Array.from({ length: 20 }, () => rig.post(CHANNELS[random(5)] ?? "kill.a", `p${(posted += 1)}`));
      await Promise.all(burst);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  let isOver = false;
  const killing = async (): Promise<void> => {
    while (!isOver) {
      const { child, ended } = writer(2 + random(25), random(2) === 0 ? "before" : "after");
      const timer = setTimeout(() => child.kill("SIGTERM"), 15_000);
      if ((await ended) === "SIGKILL") kills += 1;
      clearTimeout(timer);
    }
  };
  const changing = async (): Promise<void> => {
    while (!isOver) {
      const [who, channel] = [members[random(MEMBERS)], CHANNELS[random(5)] ?? ""];
      if (who === undefined) continue;
      const last = intervals.get(place(who, channel))?.at(-1);
      if (last === undefined || last.leave !== Infinity) await joinOne(who, channel);
      else await leaveOne(who, channel);
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  };
  const both = [killing(), changing()];
  await posting();
  isOver = true;
  await Promise.all(both);
  const { child, ended } = writer(0, "before");
  await rig.passed(await rig.post("kill.a", "last"));
  child.kill("SIGTERM");
  await ended;

  const posts = await allPosts();
  expect(posts.length).toBeGreaterThan(POSTS);
  expect(kills).toBeGreaterThanOrEqual(LEAST_KILLS);
  let copies = 0;
  for (const who of members) {
    const owed = posts.filter(({ seq, channel }) =>
      (intervals.get(place(who, channel)) ?? []).some(({ join, leave }) => seq > join && seq <= leave),
    );
    const got = (await copiesOf(rig.nc, who)).map(({ source }) => source);
    copies += got.length;
    expect(got.toSorted((a, b) => a - b)).toEqual(owed.map(({ seq }) => seq));
  }
  process.stdout.write(`${posts.length} posts, ${kills} kills, ${copies} copies, ${intervals.size} memberships\n`);
}, 600_000);

async function allPosts(): Promise<{ seq: number; channel: string }[]> {
  const found: { seq: number; channel: string }[] = [];
  const { chat } = spaceNames("main");
  for (let seq = 1; ;) {
    const entry = await leaderNext(rig.nc, chat, spaceSubjects("main").chatAll, seq);
    if (entry === undefined) return found;
    seq = entry.seq + 1;
    found.push({ seq: entry.seq, channel: entry.subject.split(".").slice(5).join(".") });
  }
}
