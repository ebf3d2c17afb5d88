/**
 * The gate of an instance that a dead registration has left frozen (§13.1, the guarded reconciler): whoever registers that
 * instance next completes it under its own id where it stood, once the holder is proved gone, and never because time has
 * passed.
 */
import { describe, expect, test } from "vitest";
import type { Connected } from "../../shared/broker/still-connected.ts";
import { expiryBarrier } from "../../shared/ledger/serving-barrier.ts";
import type { ServingLedger } from "../../shared/ledger/serving-type.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { stepEndpointGate } from "../../shared/protocol/ledger/endpoint-gate-machine.ts";
import { type EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { Died, type MemoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import {
  A,
  B,
  ENDPOINT,
  type Instance,
  activeOf,
  credentialsOf,
  entryOf,
  gateOf,
  registered,
  served,
  servingOver,
  unborn,
} from "../support/serving-parts.ts";

const gone: Connected = { kind: "none" };
const live: Connected = { kind: "some", count: 1 };
const silent: Connected = { kind: "unknown", code: ErrorCode.Unavailable, why: "2 of 3 answered", next: "ask later" };
/** By then every credential has ended, and nobody has been heard of for years. */
const YEARS_LATER = NOW_MS + 1e12;

/** Another process, years later, and what the servers say to it. Keeps who was asked about. */
function later(ledger: MemoryLedger, found: Connected, store = ledger.store()) {
  const asked: Principal[] = [];
  const connectionsOf = (p: Principal): Promise<Connected> => {
    asked.push(p);
    return Promise.resolve(found);
  };
  const now = (): number => YEARS_LATER;
  const serving = servingOver(store, { now, barrier: expiryBarrier({ connectionsOf, now }) });
  return { asked, serving };
}

/** An instance that served, and whose gate a registration has frozen and left. */
async function frozen(): Promise<Instance> {
  const { ledger, instanceId } = await served();
  const step = { to: "frozen", op: { opId: "register-1", kind: "registration" } } as const;
  const moved = stepEndpointGate(gateOf(ledger, instanceId), step);
  if (moved.kind === "move") ledger.put("auth", endpointKey.gate(ENDPOINT, instanceId), moved.row);
  return { ledger, instanceId };
}

const begin = (serving: ServingLedger, instanceId: string) =>
  serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });

/** Every state that the gate had, from now on, in its order. */
function watching({ ledger, instanceId }: Instance) {
  const seen: EndpointGateRow[] = [];
  const store = ledger.store();
  const cas: typeof store.cas = async (bucket, key, value, revision) => {
    const made = await store.cas(bucket, key, value, revision);
    if (key === endpointKey.gate(ENDPOINT, instanceId)) seen.push(gateOf(ledger, instanceId));
    return made;
  };
  return { seen, store: { ...store, cas } };
}

describe.each([
  ["a registration of it", frozen, { kind: "registration", opId: "register-1" }, 1],
  ["its own first registration", unborn, { kind: "activation", opId: `serve-${A}` }, 0],
] as const)("W131L.06 the gate is held by %s, which is dead", (_, left, op, generation) => {
  test.each([
    ["alive", live, "failed-precondition"],
    ["not to be told", silent, "unavailable"],
  ] as const)(
    "W131L.06 its holder is %s: refused, and the gate stays as it is, however late it is",
    async (_is, found, code) => {
      const { ledger, instanceId } = await left();
      const before = gateOf(ledger, instanceId);
      const { asked, serving } = later(ledger, found);
      expect((await failure(begin(serving, instanceId))).code).toBe(code);
      expect(asked.map(dotForm)).toEqual([before.principal]);
      expect(gateOf(ledger, instanceId)).toEqual(before);
      expect(before).toMatchObject({ state: "frozen", generation, op });
    },
  );

  test("W131L.06 its holder is proved gone: opened under its own id where it stood, a generation on, and only then taken over", async () => {
    const one = await left();
    const { seen, store } = watching(one);
    const { serving } = later(one.ledger, gone, store);
    await registered(serving, { userKey: B, instanceId: one.instanceId });
    expect(seen.map(({ state, generation: at, processEpoch }) => [state, at, processEpoch]).slice(0, 3)).toEqual([
      ["open", generation + 1, 1],
      ["frozen", generation + 1, 1],
      ["open", generation + 2, 2],
    ]);
    expect(activeOf(one.ledger)).toEqual(["B2"]);
  });

  test("W131L.06 whoever completes it dies at every write: the next one goes on, and nothing of two epochs is ever good", async () => {
    for (const when of ["before", "after"] as const) {
      for (let at = 1, died = true; died; at += 1) {
        const { ledger, instanceId } = await left();
        const takes = (store: LedgerStore) =>
          registered(later(ledger, gone, store).serving, { userKey: B, instanceId });
        died = await takes(ledger.store({ at, when })).then(
          () => false,
          (thrown: unknown) => thrown instanceof Died,
        );
        expect(new Set(activeOf(ledger).map((id) => id.slice(1))).size).toBeLessThan(2);
        await takes(ledger.store());
        expect(activeOf(ledger)).toEqual(["B2"]);
        // Opened, frozen, opened; credential, gate.
        expect(died || at > 5).toBe(true);
      }
    }
  });
});

test("W131L.06 W131L.05 whoever was thought dead and comes back gets nothing of the epoch that was completed for it", async () => {
  const { ledger, instanceId } = await unborn();
  await registered(later(ledger, gone).serving, { userKey: B, instanceId });
  const late = servingOver(ledger.store());
  const begun = { instanceId, opId: `serve-${A}`, epoch: 1 };
  expect((await failure(late.open({ ...begun, endpoint: ENDPOINT, registrationRevision: 9 }))).code).toBe("expired");
  expect((await failure(late.enter(entryOf(begun, A)))).code).toBe("expired");
  expect(credentialsOf(ledger).map(({ credentialId }) => credentialId)).toEqual([B]);
});

test("W131L.06 who began a first registration goes on with it and asks nobody: nothing has been given out", async () => {
  const { ledger, instanceId } = await unborn();
  const { asked, serving } = later(ledger, silent);
  expect(await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A, instanceId })).toEqual({
    instanceId,
    opId: `serve-${A}`,
    epoch: 1,
  });
  expect(asked).toEqual([]);
});
