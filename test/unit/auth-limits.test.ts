/** Connect limits: who is charged for what, for how long, and that memory stays bounded. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createBuckets } from "../../shared/serve/buckets.ts";
import { type LimitSizes, createConnectLimits, hostKey } from "../../services/auth/edge/connect-limits.ts";

const SIZES: LimitSizes = {
  actor: { burst: 3, perMinute: 6 },
  owner: { burst: 5, perMinute: 60 },
  host: { burst: 2, perMinute: 30 },
  keys: 100,
};
const alice = { owner: "u_a", actor: "alice" };
const bob = { owner: "u_a", actor: "bob" };
const carol = { owner: "u_c", actor: "carol" };

function rig(sizes: LimitSizes = SIZES) {
  let at = 1_000;
  const limits = createConnectLimits(sizes, () => at);
  return { limits, wait: (seconds: number) => void (at += seconds * 1000) };
}

const times = <T>(count: number, act: () => T): T[] => Array.from({ length: count }, act);

describe("connect limits", () => {
  test("W10.21 an actor, its owner and a client address each have their own allowance", () => {
    const { limits } = rig();
    expect(times(4, () => limits.chargePrincipal(alice)?.limit)).toEqual([undefined, undefined, undefined, "actor"]);
    expect(times(3, () => limits.chargePrincipal(bob)?.limit)).toEqual([undefined, undefined, "owner"]);
    expect(limits.chargePrincipal(carol)).toBeUndefined();
    expect(times(3, () => limits.chargeHost("10.0.0.1")?.limit)).toEqual([undefined, undefined, "host"]);
    expect(limits.chargeHost("10.0.0.2")).toBeUndefined();
  });

  test("W10.21 a set per space: what floods one takes nothing from another", () => {
    const [one, two] = [rig().limits, rig().limits];
    times(50, () => one.chargePrincipal(alice));
    expect(one.limited(alice)?.limit).toBe("actor");
    expect(two.limited(alice)).toBeUndefined();
  });

  test("W10.23 the wait that is told is positive, whole, and enough", () => {
    const { limits, wait } = rig();
    times(3, () => limits.chargePrincipal(alice));
    const over = limits.chargePrincipal(alice);
    expect(over).toEqual({ limit: "actor", retryAfterSeconds: 10 });
    wait(9);
    expect(limits.limited(alice)).toEqual({ limit: "actor", retryAfterSeconds: 1 });
    wait(1);
    expect(limits.chargePrincipal(alice)).toBeUndefined();
    expect(limits.limited(alice)).toEqual({ limit: "actor", retryAfterSeconds: 10 });
  });

  test("asking costs nothing, and neither does being refused", () => {
    const { limits, wait } = rig();
    times(100, () => limits.limited(alice));
    times(3, () => limits.chargePrincipal(alice));
    times(100, () => limits.chargePrincipal(alice));
    wait(10);
    expect(limits.chargePrincipal(alice)).toBeUndefined();
  });

  test("one that the actor's bucket refuses is not charged to the owner", () => {
    const { limits } = rig();
    times(20, () => limits.chargePrincipal(alice));
    expect(times(2, () => limits.chargePrincipal(bob))).toEqual([undefined, undefined]);
  });

  test("any sequence: never more than the burst and what has come since", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 20_000 }), { maxLength: 200 }), (gaps) => {
        let at = 0;
        const buckets = createBuckets({ burst: 5, perMinute: 60 }, 10, () => at);
        let taken = 0;
        for (const gap of gaps) {
          at += gap;
          const wait = buckets.wait("k");
          expect(Number.isInteger(wait) && wait >= 0).toBe(true);
          if (wait > 0) continue;
          buckets.take("k");
          taken += 1;
        }
        expect(taken).toBeLessThanOrEqual(5 + at / 1000);
      }),
    );
  });

  test("taking from an empty bucket makes no debt", () => {
    let at = 0;
    const buckets = createBuckets({ burst: 1, perMinute: 60 }, 10, () => at);
    for (let n = 0; n < 50; n += 1) buckets.take("k");
    at = 1000;
    expect(buckets.wait("k")).toBe(0);
  });

  test("ten thousand addresses leave a bounded number of buckets", () => {
    const buckets = createBuckets({ burst: 2, perMinute: 2 }, 100, () => 0);
    for (let n = 0; n < 10_000; n += 1) {
      buckets.wait(`10.0.${n >> 8}.${n & 255}`);
      buckets.take(`10.0.${n >> 8}.${n & 255}`);
    }
    expect(buckets.size()).toBe(100);
  });
});

describe("what an address counts as", () => {
  test.each([
    ["10.1.2.3", "10.1.2.3"],
    ["::ffff:10.1.2.3", "10.1.2.3"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:0db8:1:2::9", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["client.example", "client.example"],
    ["", "unknown"],
    [undefined, "unknown"],
  ])("%s is %s", (host, key) => {
    expect(hostKey(host)).toBe(key);
  });

  test("a long one is cut", () => {
    expect(hostKey("x".repeat(100_000)).length).toBe(64);
  });
});
