/** How the delivery plane grades itself by its lease rows (§6.1, decision H51), and how it answers. */
import { describe, expect, test } from "vitest";
import { holderOf } from "../../services/delivery/liveness/plane.ts";
import { type SeenLease, gradeLeases } from "../../services/delivery/liveness/verdict.ts";
import type { ResponderState } from "../../shared/protocol/chat/liveness.ts";

describe("W61.07 the verdict", () => {
  const row = (holder: string, ready = true): SeenLease => ({ holder, ready });
  test.each<[string, readonly SeenLease[], ResponderState]>([
    ["no row at all", [], "unbound"],
    ["an absent row", ["none"], "unbound"],
    ["its own, not ready", [row("me", false)], "unbound"],
    ["another's, not ready", [row("x", false)], "unbound"],
    ["its own, ready", [row("me")], "bound"],
    ["another's, ready", [row("x")], "stale"],
    ["one that can't be read", ["unreadable"], "unknown"],
    ["one of several its own", [row("x"), "none", row("me")], "bound"],
    ["several, all others'", [row("x"), row("y")], "stale"],
    ["another's and one that can't be read", [row("x"), "unreadable"], "unknown"],
    ["its own and one that can't be read", ["unreadable", row("me")], "bound"],
  ])("W61.07 %s", (_what, leases, verdict) => {
    expect(gradeLeases(leases, "me")).toBe(verdict);
  });
});

test("a later run of one instance takes its lease over at once, and an earlier or another's never", () => {
  const lease = (holder: string) => ({ v: 1 as const, holder, principal: "p", epoch: 1, ready: true, at: 0 });
  const { succeeds, holder } = holderOf({ uid: "u", epoch: 7, instanceId: "i", principal: "p" });
  expect(holder).toBe("u.7.i");
  expect(["u.6", "u.1.j", "u.7", "u.8.i", "v.1.i", "u", "u.x"].map((one) => succeeds?.(lease(one)))).toEqual([
    true,
    true,
    false,
    false,
    false,
    false,
    false,
  ]);
});
