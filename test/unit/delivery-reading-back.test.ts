/** How far joins may read back: by lifecycle, by owner, and more of it as time passes (decision 45). */
import { expect, test } from "vitest";
import { MAX_BEHIND, createReadingBack } from "../../services/delivery/fanout/reading-back.ts";
import { principal } from "../../shared/protocol/base/principals.ts";

const lifecycle = (owner: string, actor: string) => ({
  key: `${owner}.${actor}`,
  principal: principal(`u_${owner.repeat(26)}`, actor),
  uid: "u".repeat(26),
});
const MINUTE = 60_000;

test("one lifecycle reads back twice as far as one join may, then as much as a minute brings; a fresh frontier is free", () => {
  let now = 0;
  const { take } = createReadingBack(() => now);
  const [one, other] = [lifecycle("a", "one"), lifecycle("b", "other")];
  expect([take(one, MAX_BEHIND), take(one, MAX_BEHIND), take(one, 1), take(one, 0), take(one, -5)]).toEqual([
    true,
    true,
    false,
    true,
    true,
  ]);
  expect(take(other, MAX_BEHIND)).toBe(true);
  now += MINUTE;
  expect([take(one, MAX_BEHIND), take(one, MAX_BEHIND)]).toEqual([true, false]);
});

test("an owner with many lifecycles is counted for all of them, and takes nothing from another owner", () => {
  const { take } = createReadingBack(() => 0);
  const mine = Array.from({ length: 20 }, (_, n) => take(lifecycle("a", `a${n}`), MAX_BEHIND));
  expect(mine.filter(Boolean)).toHaveLength(6);
  expect(take(lifecycle("b", "b"), MAX_BEHIND)).toBe(true);
});
