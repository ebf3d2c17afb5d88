/**
 * A takeover that was interrupted (§13.1): no progress of a barrier is kept, so none can be believed wrongly.
 * Its retry asks about the holder again from nothing, whatever the one before had verified.
 */
import { expect, test } from "vitest";
import type { ServingParts } from "../../shared/ledger/serving-type.ts";
import type { Principal } from "../../shared/protocol/base/principals.ts";
import { Died, type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { OWNER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { activeOf, assigned, gateOf, registered, servingOver, userKey } from "../support/serving-parts.ts";

const A = userKey("A");
const B = userKey("B");

type Asked = { readonly holder: Principal; readonly revoked: readonly string[]; readonly gate: string };

async function served(): Promise<{ readonly ledger: MemoryLedger; readonly instanceId: string }> {
  const ledger = memoryLedger();
  const serving = servingOver(ledger.store());
  await assigned(serving);
  const { instanceId } = await registered(serving, { userKey: A });
  return { ledger, instanceId };
}

/** A barrier that verifies, and keeps what it was asked. */
function asking(ledger: MemoryLedger, instanceId: string) {
  const asked: Asked[] = [];
  const barrier: ServingParts["barrier"] = (holder, revoked) => {
    const { state, processEpoch } = gateOf(ledger, instanceId);
    asked.push({ holder, revoked: revoked.map(({ credentialId }) => credentialId), gate: `${state} ${processEpoch}` });
    return Promise.resolve();
  };
  return { asked, barrier };
}

/** A death at its n-th write, and a retry; `undefined` once there are no more writes. */
async function retried(at: number, when: "before" | "after") {
  const { ledger, instanceId } = await served();
  const first = asking(ledger, instanceId);
  const died = await registered(servingOver(ledger.store({ at, when }), first), { userKey: B, instanceId }).then(
    () => false,
    (thrown: unknown) => thrown instanceof Died,
  );
  if (!died) return undefined;
  const { state, processEpoch } = gateOf(ledger, instanceId);
  const again = asking(ledger, instanceId);
  await registered(servingOver(ledger.store(), again), { userKey: B, instanceId });
  const expected: Asked = { holder: { owner: OWNER, actor: `svc_${instanceId}` }, revoked: [A], gate: "frozen 1" };
  return {
    /** Verified, and died before anybody could be let in. */
    between: first.asked.length > 0 && state === "frozen",
    asked: again.asked,
    // Asked anew from nothing, and while nobody can be let in; and not at all once it is over.
    expected: state === "open" && processEpoch === 2 ? [] : [expected],
    active: activeOf(ledger),
  };
}

test("W131L.09 a takeover that died, at whatever write, asks about its holder again on its retry, until the gate is open", async () => {
  let between = 0;
  for (const when of ["before", "after"] as const) {
    for (let at = 1; ; at += 1) {
      const one = await retried(at, when);
      if (one === undefined) break;
      expect([when, at, one.asked, one.active]).toEqual([when, at, one.expected, ["B2"]]);
      between += one.between ? 1 : 0;
    }
  }
  expect(between).toBeGreaterThan(0);
});

test("W131L.09 a holder that came back meanwhile is seen: the retry is refused, and the gate stays shut", async () => {
  const { ledger, instanceId } = await served();
  const first = asking(ledger, instanceId);
  const begun = servingOver(ledger.store({ at: 3, when: "before" }), first);
  await expect(registered(begun, { userKey: B, instanceId })).rejects.toThrow(Died);
  expect(first.asked.length).toBeGreaterThan(0);
  const back = servingOver(ledger.store(), {
    barrier: () => Promise.reject(new CotalError(ErrorCode.FailedPrecondition, "it is connected again")),
  });
  expect((await failure(registered(back, { userKey: B, instanceId }))).code).toBe("failed-precondition");
  expect(gateOf(ledger, instanceId)).toMatchObject({ state: "frozen", processEpoch: 1 });
  expect(activeOf(ledger)).toEqual([]);
});

test("W131L.09 nothing of a barrier is stored: the families of the ledger are those of a registration", async () => {
  const { ledger, instanceId } = await served();
  await registered(servingOver(ledger.store()), { userKey: B, instanceId });
  expect(new Set(ledger.keys("auth").map((key) => key.split(".")[0]))).toEqual(
    new Set(["servicename", "stage", "epgate", "epcred"]),
  );
  expect(gateOf(ledger, instanceId)).toMatchObject({ state: "open", processEpoch: 2 });
});
