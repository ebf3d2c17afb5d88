/** The end of a lifecycle asked for by two entries (§13.1), over a ledger in memory: one operation, one run, and whom it spares. */
import { setImmediate } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import { endIfProved, finishEnd } from "../../services/auth/plane/retire.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };

async function enrolled(over: Partial<PlaneParts> = {}) {
  const ledger = memoryLedger();
  const parts = memoryParts(ledger.store(), over);
  const authority = createAuthority(parts);
  const { uid } = await authority.enrol(alice, SIGN_IN);
  return { ledger, parts, authority, uid };
}

test("W131.14 two requests and the door at once are one operation, one run at a time, one clean-up", async () => {
  const looks: (() => void)[] = [];
  const { parts, authority, uid } = await enrolled({
    connectionsOf: async () => {
      await new Promise<void>((resolve) => looks.push(resolve));
      return { kind: "none" };
    },
  });
  const first = authority.retire(alice, uid);
  await vi.waitUntil(() => looks.length === 1);
  // It waits for its proof. Over a ledger in memory the others come as far as they can in a turn of the loop.
  const others = [authority.retire(alice, uid), authority.retireRevoked(alice, uid)];
  await setImmediate();
  expect([looks.length, parts.removed]).toEqual([1, []]);
  looks[0]?.();
  for (const told of await Promise.all([first, ...others])) expect(told).toEqual({ opId: `retire-${uid}` });
  expect([looks.length, parts.removed]).toEqual([1, [`${OWNER}.alice.${uid}`]]);
});

test("W131.14 the door ends nobody who is granted, and writes nothing; once it is revoked, it does", async () => {
  const { ledger, authority, uid } = await enrolled();
  const before = ledger.writes.length;
  expect(await failure(authority.retireRevoked(alice, uid))).toMatchObject({ code: "failed-precondition" });
  expect(ledger.writes.length).toBe(before);
  await authority.retire(alice, uid);
  expect(await authority.retireRevoked(alice, uid)).toEqual({ opId: `retire-${uid}` });
  expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "retired", op: { opId: `retire-${uid}` } });
});

test("W131.16 an end that comes late, when its name has another lifecycle, ends nothing of that one", async () => {
  const { ledger, parts, authority, uid } = await enrolled();
  await authority.retire(alice, uid);
  await authority.grant({ ...alice, ...EVERYTHING, name: "again", kind: "interactive" });
  const next = await authority.enrol(alice, SIGN_IN);
  expect(next.uid).not.toBe(uid);
  const before = ledger.writes.length;
  // Whoever was asked for the end of the first one read its row before all this, and goes on only now.
  await finishEnd(parts, alice, uid);
  expect(await endIfProved(parts, alice, uid)).toEqual({ opId: undefined, connections: { kind: "none" } });
  expect(ledger.writes.length).toBe(before);
  expect(ledger.row("auth", `gate.${next.uid}`)).toMatchObject({ state: "open" });
});
