/**
 * Members, posts and writers around a change of the number of member groups, over a fan-out rig (`fanout-rig.ts`): what
 * each member is owed is kept here, and compared with what is stored.
 */
import { expect } from "vitest";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { type FanoutRig, type Running, joining } from "./fanout-rig.ts";
import { copiesOf, markerOf, rowsOf } from "./stored-copies.ts";

export const upTo = (groups: number): number[] => Array.from({ length: groups }, (_, group) => group);

export function regroupingOf(rig: FanoutRig) {
  /** Writers of all groups of one number while `work` runs. */
  const written = async <T>(groups: number, work: (writers: readonly Running[]) => Promise<T>): Promise<T> => {
    const writers = upTo(groups).map((group) => rig.run({ group, groups }));
    try {
      return await work(writers);
    } finally {
      await Promise.all(writers.map((one) => one.stop()));
    }
  };
  const allPassed = (groups: number, seq: number) => Promise.all(upTo(groups).map((group) => rig.passed(seq, group)));
  return {
    written,
    allPassed,
    /** The first group writes alone: it has more than the others then. */
    firstPassed: async (groups: number, seq: number): Promise<void> => {
      const first = rig.run({ group: 0, groups });
      await rig.passed(seq, 0);
      await first.stop();
    },
    /** As the service does it: until it is done. */
    finished: async (wanted: number): Promise<void> => {
      for (;;) {
        const first = await markerOf(rig.nc);
        if (first?.of === wanted && first.state === undefined) return;
        await rig.regrouped(wanted);
      }
    },
    /** Somebody who is in this group of so many. */
    memberOf: async (group: number, groups: number, actor: string): Promise<Lifecycle> => {
      for (let n = 0; ; n += 1) {
        const who = await rig.member(`${actor}_${n}`);
        if (rig.groupOf(who, groups) === group) return who;
      }
    },
    /** A join whose writer dies: before any copy of it (2), or once the marker names it (3). */
    beginJoin: async (who: Lifecycle, channel: string, cursor: number, groups: number, at: 2 | 3): Promise<void> => {
      const dying = rig.run({ group: rig.groupOf(who, groups), groups, die: { at, when: "after" } });
      await expect(dying.ask(joining(who, channel, cursor))).rejects.toThrow("died after");
    },
    /** Members of one channel. */
    crowd: (channel: string) => {
      const owed = new Map<Lifecycle, string[]>();
      /** Of each, the last copy that was looked at. */
      const seen = new Map<Lifecycle, number>();
      const said: string[] = [];
      return {
        /** Posts so many, and returns the sequence of the last. */
        say: async (count: number): Promise<number> => {
          let last = 0;
          for (let n = 0; n < count; n += 1) {
            const words = `${channel} ${said.length + 1}`;
            last = await rig.post(channel, words);
            said.push(words);
            for (const list of owed.values()) list.push(words);
          }
          return last;
        },
        /** So many who join, while there is one group. */
        gather: async (count: number): Promise<void> => {
          const cursor = await rig.frontier();
          for (let n = 0; n < count; n += 1) owed.set(await rig.member(`${channel}_${n}`), []);
          await written(1, ([writer]) =>
            Promise.all([...owed.keys()].map(async (who) => writer?.ask(joining(who, channel, cursor)))),
          );
        },
        /** From now on one of them, who is owed the last so many too. */
        add: (who: Lifecycle, last: number): void => void owed.set(who, said.slice(-last)),
        /** Who is a member by now, and no longer looked at. */
        expectJoined: async (who: Lifecycle): Promise<void> => {
          expect(await rowsOf(rig.nc, who)).toMatchObject([{ state: "joined" }]);
          owed.delete(who);
        },
        /** Each has what it was owed since the last look, once, in this order, and nothing else. */
        expectExact: async (): Promise<void> => {
          for (const [who, list] of owed) {
            const copies = await copiesOf(rig.nc, who, "main", (seen.get(who) ?? 0) + 1);
            expect([who.key, ...copies.map(({ text }) => text)]).toEqual([who.key, ...list.splice(0)]);
            seen.set(who, copies.at(-1)?.seq ?? seen.get(who) ?? 0);
          }
        },
      };
    },
  };
}

/** Did it die, as it was told to? */
export async function hasDied(work: Promise<unknown>): Promise<boolean> {
  try {
    await work;
    return false;
  } catch (thrown) {
    if (String(thrown).includes("died")) return true;
    throw thrown;
  }
}
