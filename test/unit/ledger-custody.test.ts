/**
 * A UID that is marked for service custody (§13.1): every ordinary operation refuses it by its reason, and writes
 * nothing. The marked reservation is laid under a lifecycle that is whole otherwise, so nothing else can be the reason.
 */
import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { heldGates } from "../../services/auth/plane/operations.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { activate } from "../../shared/ledger/activation.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import { takeEpoch } from "../../shared/ledger/epoch.ts";
import { admit } from "../../shared/ledger/obligations.ts";
import { SERVICE_CUSTODY, readReservation } from "../../shared/ledger/reservation.ts";
import { restoredOp, adoptRestored } from "../../shared/ledger/restored.ts";
import { beginRetirement } from "../../shared/ledger/retirement.ts";
import { servingLedger } from "../../shared/ledger/serving.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { takeOver } from "../../shared/ledger/takeover.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { type NativeServiceUid, ReservationRow, serviceActor } from "../../shared/protocol/ledger/reservation-rows.ts";
import type { AclRow } from "../../shared/protocol/ledger/rows.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, OWNER, SIGN_IN, SYSTEM, memoryParts, seededBytes } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
const INSTANCE = "i".repeat(26);
const ACCOUNT = `A${"F".repeat(55)}`;

function marked(lifecycleUid: string): NativeServiceUid {
  const native = { accountPublicKey: ACCOUNT, space: "main", lifecycleUid };
  const assigned = { owner: OWNER, endpoint: "com.example.echo", instanceId: INSTANCE };
  return {
    v: 1,
    kind: "native-service-uid",
    native,
    assignment: { ...assigned, actor: serviceActor({ ...native, ...assigned }), duty: "serve" },
    creation: { operationId: "op1", requestDigest: canonicalDigest("request") },
  };
}

type World = {
  readonly ledger: MemoryLedger;
  readonly store: LedgerStore;
  readonly uid: string;
  readonly root: string;
};

/** Alice's lifecycle, as it is after a sign-in; its reservation is not her own any more. */
async function taken(): Promise<World> {
  const ledger = memoryLedger();
  const { uid, credentialId } = await createAuthority(memoryParts(ledger.store())).enrol(alice, SIGN_IN);
  ledger.put("records", `uid.${uid}`, marked(uid));
  return { ledger, store: ledger.store(), uid, root: credentialId };
}

const plane = ({ store }: World) => createAuthority(memoryParts(store));
const acl: AclRow = {
  v: 1,
  name: "a",
  allowSubscribe: [],
  durables: true,
  at: 1,
  credential: `U${"A".repeat(55)}`,
};

const OPERATIONS: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
  "an activation": ({ store, uid }) => {
    const request = { opId: "op9", principal: { owner: OWNER, actor: "bob" }, requestDigest: "d", uid };
    return activate(store, { ...request, managerInstance: "m", now: 1, random: seededBytes }, () => Promise.resolve());
  },
  "the same activation, asked for again": ({ store, uid }) => {
    const request = { opId: `enrol-${uid}`, principal: alice, uid };
    const requestDigest = canonicalDigest({ principal: `${OWNER}.alice`, uid });
    return activate(store, { ...request, requestDigest, managerInstance: "m", now: 1, random: seededBytes }, () =>
      Promise.resolve(),
    );
  },
  "an entry of a credential": ({ store, uid, root }) =>
    enterCredential(store, { principal: alice, uid, credentialId: root, expires: 9 }),
  "an exchange": (world) => plane(world).enrol(alice, SIGN_IN),
  "a takeover": ({ store, uid }) =>
    takeOver(store, { principal: alice, uid, opId: "t", fromEpoch: 1 }, () => Promise.resolve()),
  "a takeover that is asked of the plane": (world) => plane(world).takeOver(alice, world.uid, 1),
  "a start of a process": ({ store, uid }) => takeEpoch(store, alice, uid),
  "an end": ({ store, uid }) => beginRetirement(store, alice, "r", uid),
  "an end that is asked of the plane": (world) => plane(world).retire(alice, world.uid),
  "a revocation": (world) => plane(world).revoke(alice),
  "a narrowing": (world) => plane(world).narrow(alice, { allowPublish: [] }),
  "a grant": (world) => plane(world).grant({ ...alice, ...EVERYTHING, name: "A", kind: "interactive" }),
  "a mint that adopts what a restore made": async ({ ledger, store, uid }) => {
    const stage = { v: 1, opId: restoredOp("static", uid), ...alice, lifecycleUid: uid, inboxNonce: "n" } as const;
    ledger.put("auth", `stage.${stage.opId}.activation`, { ...stage, requestDigest: "d" });
    return adoptRestored(store, alice, acl);
  },
  "an admission of work": ({ store, uid }) => {
    const name = {
      target: uid,
      endpoint: "com.example.echo",
      owner: OWNER,
      actor: "bob",
      uid: "b".repeat(26),
      id: "x",
    };
    const bound = { decision: "self", opId: "o", commitKey: "k", commitBaseRevision: 0, commitValue: {} } as const;
    return admit(store, name, alice, { ...bound, commitDigest: canonicalDigest({}) });
  },
  "the rows of a daemon": (world) =>
    plane(world).enterDaemon(
      { principal: { owner: SYSTEM, actor: "delivery" }, uid: world.uid },
      {
        begin: true,
        credentials: [],
      },
    ),
};

describe("W131S.02 a UID that is reserved for service custody", () => {
  test.each(Object.entries(OPERATIONS))("W131S.02 %s refuses it before anything is written", async (_, run) => {
    const world = await taken();
    const before = world.ledger.writes.length;
    expect(await failure(run(world))).toMatchObject({
      code: "failed-precondition",
      outcome: "not-executed",
      details: [{ kind: SERVICE_CUSTODY }],
    });
    expect(world.ledger.writes.slice(before)).toEqual([]);
  });

  test("W131S.02 a connect is refused, and so is the check before a bearer leaves", async () => {
    const world = await taken();
    const act = { ...alice, lifecycleUid: world.uid, credentialId: world.root };
    expect(await plane(world).check(act)).toEqual({
      ok: false,
      code: "failed-precondition",
      reason: `the lifecycle UID ${world.uid} is reserved for service custody`,
    });
  });

  test("W131S.02 an instance of an ordinary endpoint is never taken over under one", async () => {
    const ledger = memoryLedger();
    const barrier = () => Promise.resolve();
    const gatePage = () => Promise.resolve({ rows: [] });
    const parts = { space: "main", accountKey: ACCOUNT, barrier, gatePage, now: () => 1, random: randomBytes };
    const serving = servingLedger({ ...parts, ledger: ledger.store() });
    await serving.assign({ endpoint: "com.example.echo", owner: OWNER, by: alice });
    const asked = { endpoint: "com.example.echo", owner: OWNER, userKey: `U${"A".repeat(55)}` };
    const { instanceId } = await serving.begin(asked);
    ledger.put("records", `uid.${instanceId}`, marked(instanceId));
    const before = ledger.writes.length;
    for (const again of [asked, { ...asked, instanceId }]) {
      expect(await failure(serving.begin(again))).toMatchObject({ details: [{ kind: SERVICE_CUSTODY }] });
    }
    expect(ledger.writes.slice(before)).toEqual([]);
  });

  test("W131S.02 a list of held gates tells its gate by the key, and projects no operation of it", async () => {
    const world = await taken();
    world.ledger.put("auth", `gate.${world.uid}`, {
      state: "frozen",
      generation: 1,
      op: { opId: `retire-${world.uid}`, kind: "retirement" },
    });
    expect(await heldGates(memoryParts(world.store))).toEqual({ held: [], unreadable: [`gate.${world.uid}`] });
  });

  test("W131S.01 the actor of an assignment, as another program works it out", () => {
    const assigned = { accountPublicKey: ACCOUNT, space: "main", owner: OWNER, endpoint: "com.example.echo" };
    const told = [INSTANCE, "iiiiiiiiiiiiiiiiiiii000034"].map((instanceId) =>
      serviceActor({ ...assigned, instanceId }),
    );
    expect(told).toEqual([
      "svc_50d5cgc5augle9u43dauqwgf3grt6rldilvympe9b7rtzn3d84",
      "svc_006v81vmtr7h8dp38lbtd5u2iiae0a5n1o9n8smyogk81owype",
    ]);
  });

  test("W131S.01 W131S.02 a marked reservation is closed, names its key's UID, and an actor worked out of its assignment", async () => {
    const whole = marked("q".repeat(26));
    expect(ReservationRow.safeParse(whole).success).toBe(true);
    expect(whole.assignment.actor).toMatch(/^svc_[0-9a-z]{50}$/);
    const damaged = [
      { ...whole, more: 1 },
      { ...whole, assignment: { ...whole.assignment, instanceId: "j".repeat(26) } },
      { ...whole, assignment: { ...whole.assignment, duty: "watch" } },
      { ...whole, native: { ...whole.native, space: "lab" } },
      { ...whole, creation: { operationId: "op1" } },
    ];
    for (const one of damaged) expect(ReservationRow.safeParse(one).success).toBe(false);
    const ledger = memoryLedger();
    ledger.put("records", `uid.${"z".repeat(26)}`, whole);
    expect(await failure(readReservation(ledger.store(), "z".repeat(26)))).toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining("names another UID") as string,
    });
  });
});
