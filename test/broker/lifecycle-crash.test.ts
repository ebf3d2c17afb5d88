/**
 * Each operation on a lifecycle dies before, and then after, every one of its durable writes, over a real broker
 * (§13.1). How many there are is found by running: the loop ends with the run that does not die.
 *
 * After each death the invariants hold; then another process goes on, under the same operation, and it is whole.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ActorAdministration, Authority } from "../../services/auth/plane/authority-type.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { type HeldGate, type ResumeEvent, resumeEnds } from "../../services/auth/plane/operations.ts";
import { LIVE } from "../../services/auth/plane/liveness.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { verifyConsumer } from "../../shared/broker/ensure.ts";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { dlvConsumer, dmConsumer } from "../../shared/broker/resources.ts";
import { type Death, Died } from "../../shared/broker/write.ts";
import { activate } from "../../shared/ledger/activation.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import type { Principal } from "../../shared/protocol/base/principals.ts";
import { CredentialRow, GateRow, HeadRow, UidRow } from "../../shared/protocol/ledger/rows.ts";
import { EVERYTHING, OWNER, SIGN_IN, seededBytes } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeParts } from "../support/store-plane.ts";
import { expectWholeLedger } from "../support/whole-ledger.ts";

let space: TestSpace;
let store: Connection;
beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  store = await space.openStore();
}, 60_000);
afterAll(() => space.stop());

const names = spaceNames("main");
const WHEN = ["before", "after"] as const;

type Plane = Authority & ActorAdministration;
type Lifecycle = { readonly p: Principal; readonly uid: string; readonly credentialId: string };

/** One process's plane; it dies at the given write. `asked` hears each question about connections. */
function parts(die?: Death, asked: (p: Principal) => Promise<void> = () => Promise.resolve()): PlaneParts {
  return storeParts(space, store, die, {
    // Whoever froze a gate here is this very process.
    livenessOf: () => Promise.resolve(LIVE),
    connectionsOf: async (p) => {
      await asked(p);
      return { kind: "none" };
    },
  });
}

const plane = (die?: Death): Plane => createAuthority(parts(die, expectShut));

async function row(bucket: "auth" | "records" | "acl", key: string): Promise<unknown> {
  const place = names.bucket[bucket];
  const entry = await leaderLast(store.nc, bucketStream(place), kvKey(place, key));
  return entry === undefined || entry.data.length === 0 ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

async function keysOf(bucket: "auth" | "records", filter: string): Promise<string[]> {
  const page = await rowPage(store.nc, names.bucket[bucket], { filter, limit: 1000, via: "leader" });
  return page.rows.map(({ key }) => key);
}

const gateOf = async (uid: string): Promise<GateRow> => GateRow.parse(await row("auth", `gate.${uid}`));
const headOf = async (p: Principal): Promise<HeadRow> =>
  HeadRow.parse(await row("records", `lifecycle.${p.owner}.${p.actor}`));

async function activeOf(uid: string): Promise<string[]> {
  const rows = await Promise.all((await keysOf("auth", `cred.${uid}.*`)).map((key) => row("auth", key)));
  return rows
    .map((value) => CredentialRow.parse(value))
    .flatMap(({ state, credentialId }) => (state === "active" ? [credentialId] : []));
}

/** The question about connections is put once nothing new can be let in (decision H65). */
async function expectShut(p: Principal): Promise<void> {
  const { lifecycleUid } = await headOf(p);
  expect((await gateOf(lifecycleUid)).state).not.toBe("open");
  expect(await activeOf(lifecycleUid)).toEqual([]);
}

async function allHeld(): Promise<readonly HeldGate[]> {
  const found: HeldGate[] = [];
  for (let cursor: number | undefined; ;) {
    const page = await plane().operations(cursor);
    found.push(...page.held);
    if (page.cursor === undefined) return found;
    ({ cursor } = page);
  }
}

/** Runs it on a fresh actor for each death, until a run lives. Hands back how many writes there are. */
async function atEveryWrite(
  when: Death["when"],
  run: (plane: Plane, of: Lifecycle) => Promise<unknown>,
  then: (of: Lifecycle) => Promise<void>,
): Promise<number> {
  for (let at = 1; ; at += 1) {
    const p = { owner: OWNER, actor: `${when}_${(made += 1)}` };
    const of = { p, ...(await plane().enrol(p, SIGN_IN)) };
    const died = await run(plane({ at, when }), of).then(() => false, expectDied);
    await then(of);
    if (!died) return at - 1;
  }
}
let made = 0;

function expectDied(thrown: unknown): true {
  if (thrown instanceof Died) return true;
  throw thrown;
}

const actOf = ({ p, uid, credentialId }: Lifecycle) => ({ ...p, lifecycleUid: uid, credentialId });

/** Whatever died where: nobody is let in under a shut gate, and the name is not free before everything is through. */
async function expectContained(of: Lifecycle): Promise<void> {
  const { p, uid } = of;
  const [gate, head, checked] = [await gateOf(uid), await headOf(p), await plane().check(actOf(of))];
  expect(checked.ok && (gate.state !== "open" || head.state !== "active")).toBe(false);
  expect(head.lifecycleUid).toBe(uid);
  if (head.state === "retired") return expectRetired(of);
  const taker = {
    opId: `thief-${uid}`,
    principal: p,
    requestDigest: "d",
    managerInstance: "m",
    now: 1,
    random: seededBytes,
  };
  const thief = activate(parts().ledger, taker, () => Promise.resolve());
  expect(await failure(thief)).toMatchObject({ code: "already-exists" });
  expect(await gateOf(uid)).toEqual(gate);
}

async function expectRetired({ p, uid, credentialId }: Lifecycle): Promise<void> {
  expect(await headOf(p)).toMatchObject({ state: "retired", lifecycleUid: uid });
  expect(await gateOf(uid)).toMatchObject({ state: "retired", op: { opId: `retire-${uid}`, kind: "retirement" } });
  expect(await row("records", `frontier.${uid}`)).toMatchObject({ lifecycleUid: uid, opId: `retire-${uid}` });
  expect(await activeOf(uid)).toEqual([]);
  expect(await row("acl", `${p.owner}.${p.actor}.${uid}`)).toBeUndefined();
  const made = [dmConsumer("main", p, uid, 1), dlvConsumer("main", p, uid)];
  const drift = await Promise.all(made.map((spec) => verifyConsumer(store.nc, spec)));
  expect(drift.flat().map(({ field, found }) => `${field} ${String(found)}`)).toEqual([
    "consumer absent",
    "consumer absent",
  ]);
  expect(await plane().check({ ...p, lifecycleUid: uid, credentialId })).toMatchObject({ ok: false });
}

/** The name is granted anew, under another UID; the one before stays reserved for ever. */
async function expectSuccessor({ p, uid }: Lifecycle): Promise<void> {
  await plane().grant({ ...p, ...EVERYTHING, name: "again", kind: "interactive" });
  const next = await plane().enrol(p, SIGN_IN);
  expect(next.uid).not.toBe(uid);
  expect(UidRow.parse(await row("records", `uid.${uid}`))).toMatchObject(p);
  expect(await plane().check({ ...p, lifecycleUid: next.uid, credentialId: next.credentialId })).toMatchObject({
    ok: true,
  });
}

describe("W131L.10 a lifecycle's beginning dies at every write", () => {
  test.each(WHEN)(
    "W131L.10 %s each: what is prepared stands under its stage, and every row of the ledger is whole",
    async (when) => {
      let looked = await expectWholeLedger(store.nc);
      let writes = 0;
      for (let isDead = true; isDead; writes += 1) {
        const p = { owner: OWNER, actor: `half_${when}_${writes}` };
        isDead = await plane({ at: writes + 1, when })
          .enrol(p, SIGN_IN)
          .then(() => false, expectDied);
        looked = await expectWholeLedger(store.nc, looked);
        // Whoever comes after it finishes it.
        await plane().enrol(p, SIGN_IN);
        looked = await expectWholeLedger(store.nc, looked);
      }
      // Actor, stage, reservation, gate, head, two durables, read list, gate, root, gate, head, at least.
      expect(writes).toBeGreaterThan(10);
    },
    60_000,
  );
});

describe("W131.11 W131L.14 the end of a lifecycle dies at every write", () => {
  test.each(WHEN)(
    "W131.11 W131.14 W131L.14 %s each: it is contained, and the same request goes on with the same operation",
    async (when) => {
      const writes = await atEveryWrite(
        when,
        (dying, { p, uid }) => dying.retire(p, uid),
        async (of) => {
          await expectContained(of);
          expect(await plane().retire(of.p, of.uid)).toEqual({ opId: `retire-${of.uid}` });
          await expectRetired(of);
          // Once more it finds everything done.
          expect(await plane().retire(of.p, of.uid)).toEqual({ opId: `retire-${of.uid}` });
          await expectSuccessor(of);
        },
      );
      // Actor, read list, gate, head, root, frontier, two durables, read list gone, gate, head.
      expect(writes).toBe(11);
    },
    120_000,
  );

  test.each(WHEN)(
    "W131L.05 W131L.14 %s each: the next plane finds the gate and takes the end up by itself",
    async (when) => {
      await atEveryWrite(
        when,
        (dying, { p }) => dying.revoke(p),
        async (of) => {
          const before = await gateOf(of.uid);
          const events: ResumeEvent[] = [];
          const isLeft = await resumeEnds(parts(), (event) => events.push(event), new AbortController().signal);
          expect([isLeft, events.filter(({ kind }) => kind !== "resumed")]).toEqual([false, []]);
          const gate = await gateOf(of.uid);
          // Before the freeze nothing of the end is durable but the grant, which lets nobody in any more.
          expect(gate.state).toBe(before.state === "frozen" ? "retired" : before.state);
          if (gate.state === "retired") await expectRetired(of);
        },
      );
    },
    120_000,
  );
});

describe("W131.07 a takeover dies at every write", () => {
  test.each(WHEN)(
    "W131.07 W131L.14 %s each: nothing of two epochs is ever good at once, and the same operation opens the next",
    async (when) => {
      const writes = await atEveryWrite(
        when,
        (dying, { p, uid }) => dying.takeOver(p, uid, 1),
        async (of) => {
          const { p, uid } = of;
          await expectContained(of);
          const head = await headOf(p);
          expect(head.processEpoch === 2 ? await activeOf(uid) : []).toEqual([]);
          expect(await plane().takeOver(p, uid, 1)).toBe(2);
          expect(await headOf(p)).toMatchObject({
            state: "active",
            processEpoch: 2,
            lastTakeoverOpId: `takeover-${uid}-1`,
          });
          expect(await gateOf(uid)).toEqual({ state: "open", generation: 2 });
          expect(await plane().check(actOf(of))).toMatchObject({ ok: false });
          // The person signs in again, into the same lifecycle and another root.
          const again = await plane().enrol(p, SIGN_IN);
          expect(again.uid).toBe(uid);
          expect(again.credentialId).not.toBe(of.credentialId);
          expect(await activeOf(uid)).toEqual([again.credentialId]);
          expect(await plane().check({ ...actOf(of), credentialId: again.credentialId })).toMatchObject({ ok: true });
        },
      );
      // Stage, gate, root, head, gate.
      expect(writes).toBe(5);
    },
    120_000,
  );

  test("W131.09 W131.13 where nobody can tell who is connected nothing goes on: the gate stays shut, and says whose it is", async () => {
    const p = { owner: OWNER, actor: "unproved" };
    const blind = {
      ...parts(),
      connectionsOf: () =>
        Promise.resolve({ kind: "unknown", code: "unavailable", why: "nobody answered", next: "ask later" } as const),
    };
    const { uid, credentialId } = await plane().enrol(p, SIGN_IN);
    const dark = createAuthority(blind);
    expect(await failure(dark.takeOver(p, uid, 1))).toMatchObject({ code: "unavailable", next: "ask later" });
    expect(await headOf(p)).toMatchObject({ state: "active", processEpoch: 1 });
    expect(await gateOf(uid)).toMatchObject({ state: "frozen", op: { kind: "takeover", opId: `takeover-${uid}-1` } });
    expect(await plane().check({ ...p, lifecycleUid: uid, credentialId })).toMatchObject({ ok: false });
    // An end does not take the gate from it.
    expect(await failure(plane().retire(p, uid))).toMatchObject({ code: "conflict" });
    expect(await allHeld()).toContainEqual({
      ...p,
      lifecycleUid: uid,
      kind: "takeover",
      opId: `takeover-${uid}-1`,
    });
    expect(await plane().takeOver(p, uid, 1)).toBe(2);
    expect(await failure(dark.retire(p, uid))).toMatchObject({ code: "unavailable" });
    expect(await headOf(p)).toMatchObject({ state: "retiring" });
    expect(await failure(dark.grant({ ...p, ...EVERYTHING, name: "again", kind: "interactive" }))).toMatchObject({
      code: "unavailable",
    });
    await plane().retire(p, uid);
    await expectRetired({ p, uid, credentialId });
  }, 30_000);
});

describe("W131.16 an alias alone ends nothing", () => {
  test("W131.16 a late end, and a late takeover, of a name that another lifecycle has by now do nothing to it", async () => {
    const p = { owner: OWNER, actor: "recycled" };
    const first = await plane().enrol(p, SIGN_IN);
    await plane().retire(p, first.uid);
    await plane().grant({ ...p, ...EVERYTHING, name: "again", kind: "interactive" });
    const second = await plane().enrol(p, SIGN_IN);
    expect(await plane().retire(p, first.uid)).toEqual({ opId: `retire-${first.uid}` });
    expect(await failure(plane().retire(p, "z".repeat(26)))).toMatchObject({ code: "failed-precondition" });
    expect(await failure(plane().takeOver(p, first.uid, 1))).toMatchObject({ code: "failed-precondition" });
    expect(await plane().check({ ...p, lifecycleUid: second.uid, credentialId: second.credentialId })).toMatchObject({
      ok: true,
    });
    expect(await failure(plane().retireRevoked(p, second.uid))).toMatchObject({ code: "failed-precondition" });
    expect(await gateOf(second.uid)).toMatchObject({ state: "open" });
  }, 30_000);
});
