/** Who a channel concerns: the map of channels, that of families, and what an interval holds (§7). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Member, createCover, includes } from "../../services/delivery/fanout/cover.ts";
import { OF_A_LIFECYCLE, OF_AN_OWNER, whyNoRoom } from "../../services/delivery/fanout/row-room.ts";
import { isFamily, matches } from "../../shared/protocol/base/channels.ts";
import {
  type MemberRow,
  MarkerRow,
  MemberRow as Row,
  groupOf,
  memberOf,
  parseLifecycle,
} from "../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";

const UID = "a".repeat(26);
function member(actor: string, row: MemberRow, revision = 1): Member {
  const principal = { owner: "o", actor };
  const lifecycle = { key: ledgerKey.acl(principal, UID), principal, uid: UID };
  return { key: ledgerKey.member(principal, UID, row.pattern), revision, lifecycle, row };
}
const joined = (pattern: string, join = 0): MemberRow => ({ v: 1, pattern, state: "joined", join });

describe("W7.14 cover", () => {
  test("a lifecycle is found once for a channel, with each of its rows; the prefix is not of its family", () => {
    const cover = createCover();
    cover.set(member("x", joined("team.>")));
    cover.set(member("x", joined("team.a")));
    cover.set(member("y", joined("team.a.b")));
    const found = (channel: string) =>
      [...cover.covering(channel)].map(([key, rows]) => [
        key.split(".")[1],
        rows.map(({ row }) => row.pattern).toSorted(),
      ]);
    expect(found("team.a")).toEqual([["x", ["team.>", "team.a"]]]);
    expect(found("team")).toEqual([]);
    expect(found("team.a.b")).toEqual(
      expect.arrayContaining([
        ["x", ["team.>"]],
        ["y", ["team.a.b"]],
      ]),
    );
  });

  test("it finds what matching each row finds", () => {
    const segment = fc.constantFrom("a", "b", "c");
    const channel = fc.array(segment, { minLength: 1, maxLength: 4 }).map((all) => all.join("."));
    const pattern = fc.tuple(channel, fc.boolean()).map(([name, family]) => (family ? `${name}.>` : name));
    fc.assert(
      fc.property(fc.array(pattern, { maxLength: 12 }), channel, (patterns, asked) => {
        const cover = createCover();
        for (const [n, each] of patterns.entries()) cover.set(member(`m${n}`, joined(each)));
        // What was there and is gone leaves no family of its length behind, and takes none with it.
        for (const [n, each] of patterns.entries()) cover.set(member(`gone${n}`, joined(`${each.slice(0, 1)}.>`)));
        for (const [n, each] of patterns.entries())
          cover.remove(member(`gone${n}`, joined(`${each.slice(0, 1)}.>`)).key);
        const wanted = patterns.flatMap((each, n) => (matches(each, asked) ? [`o.m${n}.${UID}`] : []));
        expect([...cover.covering(asked).keys()].toSorted()).toEqual(wanted.toSorted());
      }),
    );
  });

  test("a row that is replaced or removed leaves nothing behind, and what is under way is known", () => {
    const cover = createCover();
    const first = member("x", { v: 1, pattern: "a.>", state: "joining", join: 3 });
    cover.set(first);
    expect(cover.unfinished()).toEqual([first]);
    cover.set(member("x", joined("a.>", 3), 2));
    expect([cover.unfinished(), cover.size(), cover.of(first.lifecycle.key).length]).toEqual([[], 1, 1]);
    cover.remove(first.key);
    expect([cover.size(), cover.covering("a.b").size, cover.of(first.lifecycle.key).length]).toEqual([0, 0, 0]);
  });

  test("W7.11 an interval is open below and closed above; who is joining is owed nothing yet", () => {
    const at = (row: MemberRow) => [4, 5, 6, 9, 10].filter((seq) => includes(member("x", row), seq));
    expect(at({ v: 1, pattern: "a", state: "joining", join: 5 })).toEqual([]);
    expect(at(joined("a", 5))).toEqual([6, 9, 10]);
    expect(at({ v: 1, pattern: "a", state: "leaving", join: 5 })).toEqual([6, 9, 10]);
    expect(at({ v: 1, pattern: "a", state: "left", join: 5, leave: 9 })).toEqual([6, 9]);
  });
});

describe("rows", () => {
  test("a membership is one channel or one family; rows and markers are closed", () => {
    for (const pattern of [">", "*", "a.*", "a.*.>", "", "a..b"]) {
      expect(Row.safeParse(joined(pattern)).success).toBe(false);
      expect(isFamily(pattern)).toBe(false);
    }
    expect(Row.safeParse({ ...joined("a"), more: 1 }).success).toBe(false);
    expect(Row.safeParse({ v: 1, pattern: "a", state: "left", join: 1 }).success).toBe(false);
    expect(MarkerRow.safeParse({ v: 1, sequence: 1, acl: 1, by: "x", more: 1 }).success).toBe(false);
  });

  test("keys split as they are made, and a lifecycle is always of the same group", () => {
    const { lifecycle, key } = member("x", joined("a.>"));
    expect(memberOf(key)).toEqual(lifecycle);
    expect(parseLifecycle(lifecycle.key)).toEqual(lifecycle);
    expect(parseLifecycle("o.x")).toBeUndefined();
    const groups = Array.from({ length: 200 }, (_, n) => groupOf(`o.m${n}.${UID}`, 4));
    expect(new Set(groups)).toEqual(new Set([0, 1, 2, 3]));
    expect(groups.every((group, n) => group === groupOf(`o.m${n}.${UID}`, 4))).toBe(true);
    expect(groupOf("anything", 1)).toBe(0);
  });
});

describe("room for rows", () => {
  const full = (rows: number, characters: number) => ({ rows, characters });
  const why = (own = full(0, 0), owners = own) => whyNoRoom({ own, owners }, "general");

  test("what a lifecycle and its owner hold is counted as rows come, change and go", () => {
    const cover = createCover();
    const { lifecycle } = member("x", joined("a"));
    const held = () => cover.held(lifecycle);
    cover.set(member("x", joined("four")));
    cover.set(member("x", { v: 1, pattern: "four", state: "left", join: 0, leave: 1 }, 2));
    cover.set(member("x", joined("eleven.long")));
    cover.set(member("y", joined("six.66")));
    expect(held()).toEqual({ own: full(2, 15), owners: full(3, 21) });
    cover.remove(member("x", joined("four")).key);
    cover.remove(member("y", joined("six.66")).key);
    expect(held()).toEqual({ own: full(1, 11), owners: full(1, 11) });
    cover.remove(member("x", joined("eleven.long")).key);
    expect(held()).toEqual({ own: full(0, 0), owners: full(0, 0) });
  });

  test("there is some up to each limit, in rows and in characters, and none beyond; the refusal says what to do", () => {
    for (const [most, held] of [
      [OF_A_LIFECYCLE, (rows: number, characters: number) => why(full(rows, characters))],
      [OF_AN_OWNER, (rows: number, characters: number) => why(full(0, 0), full(rows, characters))],
    ] as const) {
      expect(held(most.rows - 1, most.characters - "general".length)).toBeUndefined();
      expect(held(most.rows, 0)).toMatchObject({ code: "resource-exhausted" });
      expect(held(0, most.characters - "general".length + 1)).toMatchObject({
        code: "resource-exhausted",
        next: expect.stringContaining("join") as unknown,
      });
    }
  });
});
