/** One message on several paths: shown once, its durable copy settled with it, forgotten where a copy is owed (§4). */
import { describe, expect, test } from "vitest";
import { createHands } from "../../shared/client/hands.ts";
import type { Hold } from "../../shared/client/holds.ts";
import { createSeen } from "../../shared/client/seen.ts";

function hold(deliveries = 1) {
  const said: string[] = [];
  const made: Hold = {
    seq: 1,
    counts: (shown) => {
      shown.deliveries = Math.max(shown.deliveries, deliveries);
    },
    ack: () => void said.push("ack"),
    nak: (delayMs) => void said.push(`nak ${delayMs}`),
    settled: () => said.length > 0,
    copy: () => ({ seq: 1, count: deliveries, epoch: undefined }),
    isAlive: () => true,
    renew: () => undefined,
    shown: () => undefined,
    forget: () => undefined,
  };
  return { made, said };
}
const owed = (): boolean => true;
const notOwed = (): boolean => false;

describe("W4.09 hands", () => {
  test("what is in hand or was handled is not taken again", () => {
    const hands = createHands(createSeen());
    const first = hands.take("a", owed);
    expect(hands.take("a", owed)).toBeUndefined();
    first?.ack();
    expect(hands.take("a", owed)).toBeUndefined();
    expect(hands.take("b", owed)).toBeDefined();
  });

  test("a durable copy that comes meanwhile is acknowledged with it, and not before", () => {
    const hands = createHands(createSeen());
    const item = hands.take("a", owed);
    const shown = { deliveries: 1 };
    item?.counts(shown);
    const copy = hold(3);
    expect(hands.attach("a", copy.made)).toBe(true);
    expect(copy.said).toEqual([]);
    expect(shown.deliveries).toBe(3);
    item?.ack();
    item?.nak(5);
    expect(copy.said).toEqual(["ack"]);
    expect(hands.attach("a", hold().made)).toBe(false);
  });

  test("what is given back comes again as its copy; where none is owed it is gone", () => {
    const seen = createSeen();
    const hands = createHands(seen);
    hands.take("owed", owed)?.nak(0);
    expect(hands.take("owed", owed)).toBeDefined();
    hands.take("live", notOwed)?.nak(0);
    expect(hands.take("live", notOwed)).toBeUndefined();
    const copy = hold();
    hands.take("held", notOwed, copy.made)?.nak(7);
    expect(copy.said).toEqual(["nak 7"]);
    expect(hands.take("held", notOwed)).toBeDefined();
  });
});
