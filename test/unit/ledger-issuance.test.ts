/**
 * Issued authority and derived credentials in the ledger (§13.15, §13.1): their machines, every death of an issuance, every
 * order of an issuance and an end of its source, what a resolution asks for, and who goes with whom.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { activate } from "../../shared/ledger/activation.ts";
import { enterDerived } from "../../shared/ledger/derived.ts";
import { issue, renew } from "../../shared/ledger/issuance.ts";
import { retireIssuance, revokeHandle } from "../../shared/ledger/issuance-end.ts";
import { UNBOUND_CALLER, callerAuthority, resolveIssued } from "../../shared/ledger/resolve-issued.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { takeOver } from "../../shared/ledger/takeover.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import {
  AcceptedRow,
  AttemptRow,
  type AttemptStep,
  IssuedEvidence,
  issuedKey,
  stepAttempt,
} from "../../shared/protocol/ledger/issued-rows.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { CredentialRow } from "../../shared/protocol/ledger/rows.ts";
import { type IssuedRef, type Source, stepSourceGate } from "../../shared/protocol/ledger/source-rows.ts";
import { CEILING, generation, handle, lifecycleOf, refOf, request, userKey } from "../support/issued.ts";
import { Died, type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { OWNER, seededBytes } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { stepped, watched } from "../support/stepped-ledger.ts";

const NOW = 1_900_000_000;
const alice = { owner: OWNER, actor: "alice", uid: "a".repeat(26) };
const bob = { owner: OWNER, actor: "bob", uid: "b".repeat(26) };
const carol = { owner: OWNER, actor: "carol", uid: "c".repeat(26) };
const nothing = (): Promise<void> => Promise.resolve();
const principalOf = ({ owner, actor }: typeof alice) => ({ owner, actor });

/** Three lifecycles, each with its gate open. */
async function born(): Promise<MemoryLedger> {
  const ledger = memoryLedger();
  for (const one of [alice, bob, carol]) {
    const asked = { opId: `birth-${one.actor}`, principal: principalOf(one), requestDigest: "d", uid: one.uid };
    await activate(ledger.store(), { ...asked, managerInstance: "m", now: 1, random: seededBytes }, nothing);
  }
  return ledger;
}

async function end(store: LedgerStore, one: typeof alice): Promise<void> {
  const begun = await beginRetirement(store, principalOf(one), `retire-${one.uid}`, one.uid);
  await completeRetirement(store, principalOf(one), one.uid, begun.opId, {}, nothing);
}

const attemptOf = (ledger: MemoryLedger, ref: IssuedRef) =>
  AttemptRow.parse(ledger.row("issued", issuedKey.attempt(ref)));
const credential = (ledger: MemoryLedger, uid: string, id: string) =>
  CredentialRow.optional().parse(ledger.row("auth", `cred.${uid}.${id}`));
const isActive = (ledger: MemoryLedger, uid: string, id: string) => credential(ledger, uid, id)?.state === "active";

describe("the machines", () => {
  const ref = refOf(alice);
  const steps: readonly AttemptStep[] = [
    { to: "prepared", ref, evidence: `sha256:${"1".repeat(64)}` },
    { to: "prepared", ref, evidence: `sha256:${"2".repeat(64)}` },
    { to: "active" },
    { to: "retired", by: "x" },
    { to: "retired", by: "y" },
  ];

  test("PI.03 every edge of an attempt, written out", () => {
    const base = { version: 1, ref, evidence: `sha256:${"1".repeat(64)}` } as const;
    const rows: Readonly<Record<string, AttemptRow | undefined>> = {
      absent: undefined,
      prepared: { ...base, state: "prepared" },
      active: { ...base, state: "active" },
      retired: { ...base, state: "retired", by: "x" },
    };
    const told = Object.entries(rows).flatMap(([from, row]) =>
      steps.map((step, at) => `${from} ${step.to} ${at} ${stepAttempt(row, step).kind}`),
    );
    expect(told).toEqual([
      "absent prepared 0 move",
      "absent prepared 1 move",
      "absent active 2 refused",
      "absent retired 3 refused",
      "absent retired 4 refused",
      "prepared prepared 0 done",
      // A generation is one ceiling's for ever.
      "prepared prepared 1 refused",
      "prepared active 2 move",
      "prepared retired 3 move",
      "prepared retired 4 move",
      "active prepared 0 done",
      "active prepared 1 refused",
      "active active 2 done",
      "active retired 3 move",
      "active retired 4 move",
      "retired prepared 0 refused",
      "retired prepared 1 refused",
      "retired active 2 refused",
      "retired retired 3 done",
      "retired retired 4 done",
    ]);
  });

  test("PI.03 on every walk an attempt keeps its ceiling, and what is retired stays so", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...steps), { maxLength: 20 }), (walk) => {
        let row: AttemptRow | undefined;
        for (const step of walk) {
          const move = stepAttempt(row, step);
          if (move.kind !== "move") continue;
          expect(AttemptRow.safeParse(move.row).success).toBe(true);
          expect(row?.state).not.toBe("retired");
          const { ref: named, evidence } = row ?? move.row;
          expect(move.row).toMatchObject({ ref: named, evidence });
          expect(move.row.state !== "active" || row?.state === "prepared").toBe(true);
          row = move.row;
        }
      }),
      { numRuns: 500 },
    );
  });

  test("W131L.02 the gate of a handle never opens again", () => {
    const told = ([undefined, { state: "open" }, { state: "frozen" }] as const).flatMap((gate) =>
      (["open", "frozen"] as const).map((to) => `${gate?.state ?? "absent"} ${to} ${stepSourceGate(gate, to).kind}`),
    );
    expect(told).toEqual([
      "absent open move",
      "absent frozen move",
      "open open done",
      "open frozen move",
      "frozen open refused",
      "frozen frozen done",
    ]);
  });
});

describe("PI.03 an issuance", () => {
  const ref = refOf(alice);
  const asked = request(ref, { sources: [lifecycleOf(bob), handle("h1")] });

  test("PI.03 evidence, the index of each source and the credential's row stand before it is active, which is the last write", async () => {
    const ledger = await born();
    const before = ledger.writes.length;
    await issue(ledger.store(), asked);
    const named = ledger.writes.slice(before).map((key) => key.split(".").slice(0, 2).join("."));
    expect(named).toEqual([
      "issued/attempt.v1",
      `issued/v1.${OWNER}`,
      "issued/bysource.v1",
      "issued/bysource.v1",
      "issued/bysource.v1",
      `auth/gate.${bob.uid}`,
      `auth/cred.${alice.uid}`,
      "auth/bysrc.key1",
      "auth/srcgate.key1",
      `auth/gate.${alice.uid}`,
      "accepted/accepted.v1",
      "issued/attempt.v1",
    ]);
    const evidence = IssuedEvidence.parse(ledger.row("issued", issuedKey.evidence(ref)));
    expect(evidence.sources).toHaveLength(3);
    expect(attemptOf(ledger, ref)).toMatchObject({ state: "active", ref });
    expect(AcceptedRow.parse(ledger.row("accepted", issuedKey.accepted(userKey("A"))))).toMatchObject({ ref });
    expect(credential(ledger, alice.uid, userKey("A"))).toMatchObject({
      sourceChain: ["handle.key1.h1", `issued.${ref.generation}`],
      state: "active",
    });
    // The head is stamped by roots alone.
    expect(ledger.row("records", `lifecycle.${OWNER}.alice`)).not.toHaveProperty("currentCredentialId");
  });

  const DEATHS = Array.from({ length: 12 }, (_, at) => at + 1).flatMap((at) =>
    (["before", "after"] as const).map((when) => ({ at, when })),
  );

  test.each(DEATHS)(
    "PI.03 dead $when write $at: nothing is permitted before its end, and the same request goes on",
    async (death) => {
      const ledger = await born();
      await expect(issue(ledger.store(death), asked)).rejects.toThrow(Died);
      const isLast = death.at === 12 && death.when === "after";
      const resolved = resolveIssued(ledger.store(), ref, NOW).then(
        () => true,
        () => false,
      );
      expect(await resolved).toBe(isLast);
      await issue(ledger.store(), asked);
      expect(await resolveIssued(ledger.store(), ref, NOW)).toMatchObject({ evidence: { permissions: CEILING } });
    },
  );

  test.each(DEATHS)(
    "PI.06 dead $when write $at, and a source ends: nothing of it is good, nor will be",
    async (death) => {
      const ledger = await born();
      await expect(issue(ledger.store(death), asked)).rejects.toThrow(Died);
      await end(ledger.store(), bob);
      expect(await failure(issue(ledger.store(), asked))).toBeInstanceOf(CotalError);
      expect(isActive(ledger, alice.uid, userKey("A"))).toBe(false);
      expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toBeInstanceOf(CotalError);
    },
  );

  const ENDS: Readonly<Record<string, (store: LedgerStore) => Promise<unknown>>> = {
    "the holder's end": (store) => end(store, alice),
    "a source's end": (store) => end(store, bob),
    "a handle's revocation": (store) => revokeHandle(store, handle("h1")),
    "the end of what it is cut from": (store) => retireIssuance(store, refOf(carol), "withdrawn"),
  };

  test.each(Object.entries(ENDS))(
    "PI.03 PI.06 W131L.02 in every order of an issuance and %s: when that is through, nothing of it is good, nor will be",
    async (_, ending) => {
      await fc.assert(
        fc.asyncProperty(fc.scheduler(), async (scheduler) => {
          const ledger = await born();
          await issue(ledger.store(), request(refOf(carol), { credential: { id: userKey("C"), expires: NOW + 9 } }));
          const cut: Source = { kind: "issued", ref: refOf(carol) };
          const wanted = request(ref, { sources: [lifecycleOf(bob), handle("h1"), cut] });
          let isEnded = false;
          const expectNothing = (): void => {
            if (!isEnded) return;
            const row = AttemptRow.optional().parse(ledger.row("issued", issuedKey.attempt(ref)));
            expect(row?.state).not.toBe("active");
          };
          const issuing = issue(watched(stepped(ledger.store(), scheduler), expectNothing), wanted).catch(unlessOurs);
          const over = ending(stepped(ledger.store(), scheduler)).then(() => {
            isEnded = true;
          });
          await scheduler.waitFor(Promise.all([issuing, over]));
          expectNothing();
          expect(isActive(ledger, alice.uid, userKey("A"))).toBe(false);
          expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toBeInstanceOf(CotalError);
          expect(await failure(issue(ledger.store(), wanted))).toBeInstanceOf(CotalError);
          expect(isActive(ledger, alice.uid, userKey("A"))).toBe(false);
        }),
        { numRuns: 60 },
      );
    },
    60_000,
  );

  test("PI.03 PI.06 an end that has read the family before the credential is in it: the issuance itself takes that back", async () => {
    const ledger = await born();
    await issue(ledger.store(), request(refOf(carol), { credential: { id: userKey("C"), expires: NOW + 9 } }));
    const cut: Source = { kind: "issued", ref: refOf(carol) };
    const store = ledger.store();
    const late: LedgerStore = {
      ...store,
      create: async (bucket, key, value) => {
        if (key.startsWith("cred.")) await retireIssuance(ledger.store(), refOf(carol), "withdrawn");
        return store.create(bucket, key, value);
      },
    };
    expect(await failure(issue(late, request(ref, { sources: [cut] })))).toMatchObject({ code: "expired" });
    expect(credential(ledger, alice.uid, userKey("A"))).toMatchObject({ state: "revoked" });
  });

  test("PI.03 many of one lifecycle at once all get through, each under its own generation", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const all = [1, 2, 3].map((n) =>
          issue(
            stepped(ledger.store(), scheduler),
            request(refOf(alice, n), { credential: { id: userKey("ABC"[n - 1] ?? ""), expires: NOW + 9 } }),
          ),
        );
        await scheduler.waitFor(Promise.all(all));
        for (const n of [1, 2, 3]) await resolveIssued(ledger.store(), refOf(alice, n), NOW);
      }),
      { numRuns: 30 },
    );
  }, 60_000);

  test("PI.03 a key that was released under another issuance, and another ceiling of one generation, are refused", async () => {
    const ledger = await born();
    await issue(ledger.store(), request(ref));
    expect(await failure(issue(ledger.store(), request(refOf(alice, 2))))).toMatchObject({ code: "already-exists" });
    const wider = { ...CEILING, pub: { allow: [">"], deny: [] } };
    expect(await failure(issue(ledger.store(), request(ref, { permissions: wider })))).toMatchObject({
      code: "already-exists",
    });
    const late = request(refOf(alice, 3), { expiresAt: NOW, credential: { id: userKey("D"), expires: NOW + 1 } });
    expect(await failure(issue(ledger.store(), late))).toMatchObject({ code: "bad-request" });
    // Nor later than what it is cut from, which must be active itself.
    const parent = request(refOf(bob), { expiresAt: NOW, credential: { id: userKey("E"), expires: NOW } });
    await expect(issue(ledger.store({ at: 4, when: "after" }), parent)).rejects.toThrow(Died);
    const cut = request(refOf(alice, 3), { sources: [{ kind: "issued", ref: refOf(bob) }] });
    const soon = { ...cut, credential: { id: userKey("D"), expires: NOW } };
    expect(await failure(issue(ledger.store(), soon))).toMatchObject({ code: "expired" });
    await issue(ledger.store(), parent);
    expect(await failure(issue(ledger.store(), cut))).toMatchObject({ code: "bad-request" });
    await issue(ledger.store(), soon);
  });
});

const codeOf = (thrown: unknown): string => (thrown instanceof CotalError ? thrown.code : String(thrown));

function unlessOurs(thrown: unknown): void {
  if (!(thrown instanceof CotalError)) throw thrown;
}

describe("PI.04 a resolution", () => {
  const ref = refOf(alice);
  const cut: Source = { kind: "issued", ref: refOf(carol) };

  const granted: ActorRow = {
    v: 1,
    owner: alice.owner,
    actor: alice.actor,
    lifecycleUid: alice.uid,
    state: "active",
    kind: "interactive",
    name: "Alice",
    allowSubscribe: [],
    allowPublish: [],
    capabilities: [],
    at: 1,
  };

  async function issued(): Promise<MemoryLedger> {
    const ledger = await born();
    const parent = { expiresAt: NOW + 50, credential: { id: userKey("C"), expires: NOW + 9 } };
    await issue(ledger.store(), request(refOf(carol), parent));
    const own = { expiresAt: NOW + 100, credential: { id: userKey("A"), expires: NOW + 9 } };
    ledger.put("auth", `actor.${OWNER}.alice`, granted);
    const row = await ledger.store().read("auth", `actor.${OWNER}.alice`);
    const grant: Source = { kind: "grant", ...alice, revision: row.kind === "value" ? row.revision : 0 };
    await issue(ledger.store(), request(ref, { ...own, sources: [grant, lifecycleOf(bob), handle("h1"), cut] }));
    return ledger;
  }

  test("PI.04 a yes is the ceiling as it was written, and the revision that it rests on", async () => {
    const ledger = await issued();
    const { evidence, revision } = await resolveIssued(ledger.store(), ref, NOW);
    expect(evidence).toMatchObject({ ref, permissions: CEILING, expiresAt: NOW + 100 });
    // Its own, its grant, bob's, the handle, carol's issuance, and carol's lifecycle, which that comes from.
    expect(evidence.sources).toHaveLength(6);
    const raw = await ledger.store().read("issued", issuedKey.attempt(ref));
    expect(raw).toMatchObject({ kind: "value", revision });
  });

  const BROKEN: readonly [string, string, (ledger: MemoryLedger) => Promise<unknown> | void][] = [
    ["it is retired", "expired", (ledger) => retireIssuance(ledger.store(), ref, "x")],
    ["a lifecycle that it comes from has ended", "expired", (ledger) => end(ledger.store(), bob)],
    ["its holder has ended", "expired", (ledger) => end(ledger.store(), alice)],
    ["a source is freezing", "failed-precondition", (ledger) => hold(ledger, bob.uid)],
    ["its handle is frozen, and its index not read yet", "expired", (ledger) => freeze(ledger)],
    ["what it was cut from is retired", "expired", (ledger) => retireIssuance(ledger.store(), refOf(carol), "x")],
    ["whose issuance it was cut from has ended", "expired", (ledger) => end(ledger.store(), carol)],
    ["its grant was written anew, be it the same", "expired", (ledger) => regrant(ledger, granted)],
    ["its grant is revoked", "expired", (ledger) => regrant(ledger, { ...granted, state: "revoked" })],
    ["its attempt is of other evidence", "failed-precondition", (ledger) => forge(ledger)],
    ["its evidence was deleted", "failed-precondition", (ledger) => ledger.mark("issued", issuedKey.evidence(ref))],
    ["its attempt was deleted", "failed-precondition", (ledger) => ledger.mark("issued", issuedKey.attempt(ref))],
  ];
  const hold = (ledger: MemoryLedger, uid: string) =>
    ledger.put("auth", `gate.${uid}`, { state: "frozen", generation: 1, op: { opId: "t", kind: "takeover" } });
  const regrant = (ledger: MemoryLedger, row: ActorRow) => ledger.put("auth", `actor.${OWNER}.alice`, row);
  const freeze = (ledger: MemoryLedger) => ledger.put("auth", "srcgate.key1.h1", { state: "frozen" });
  const forge = (ledger: MemoryLedger) =>
    ledger.put("issued", issuedKey.attempt(ref), { ...attemptOf(ledger, ref), evidence: `sha256:${"0".repeat(64)}` });

  test.each(BROKEN)("PI.04 refused where %s (%s)", async (_, code, breaking) => {
    const ledger = await issued();
    await resolveIssued(ledger.store(), ref, NOW);
    await breaking(ledger);
    expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code, outcome: "not-executed" });
  });

  test.each([
    ["retiring", { op: { opId: "x", kind: "retirement" } }],
    ["retired", {}],
  ])(
    "PI.04 W131.04 refused where the head of a lifecycle that it comes from is %s, whatever still stands",
    async (state, part) => {
      for (const one of [alice, bob, carol]) {
        const ledger = await issued();
        const key = `lifecycle.${OWNER}.${one.actor}`;
        ledger.put("records", key, { ...Object(ledger.row("records", key)), state, ...part });
        expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "failed-precondition" });
      }
    },
  );

  test("PI.04 it ends at its own time, and at that of what it was cut from", async () => {
    const ledger = await issued();
    await resolveIssued(ledger.store(), ref, NOW + 49);
    expect(await failure(resolveIssued(ledger.store(), ref, NOW + 50))).toMatchObject({ code: "expired" });
    const own = { expiresAt: NOW + 20, credential: { id: userKey("B"), expires: NOW + 9 } };
    await issue(ledger.store(), request(refOf(bob), own));
    await resolveIssued(ledger.store(), refOf(bob), NOW + 19);
    expect(await failure(resolveIssued(ledger.store(), refOf(bob), NOW + 20))).toMatchObject({ code: "expired" });
  });

  test("PI.04 what was never issued, or only prepared, is denied", async () => {
    const ledger = await born();
    expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "permission-denied" });
    await expect(issue(ledger.store({ at: 3, when: "after" }), request(ref))).rejects.toThrow(Died);
    expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "permission-denied" });
  });

  /** A store in which something happens the moment its sources have been read. */
  function meanwhile(ledger: MemoryLedger, what: (time: number) => Promise<unknown> | void): LedgerStore {
    const store = ledger.store();
    let times = 0;
    return {
      ...store,
      read: async (bucket, key) => {
        const raw = await store.read(bucket, key);
        if (key === `lifecycle.${OWNER}.bob`) await what((times += 1));
        return raw;
      },
    };
  }
  const touch = async (ledger: MemoryLedger): Promise<void> =>
    ledger.put("issued", issuedKey.attempt(ref), attemptOf(ledger, ref));

  test("PI.04 an attempt that has moved at the second reading is read anew; one that always moves is no yes", async () => {
    const ledger = await issued();
    const once = meanwhile(ledger, (time) => (time === 1 ? touch(ledger) : undefined));
    const { revision } = await resolveIssued(once, ref, NOW);
    expect(await ledger.store().read("issued", issuedKey.attempt(ref))).toMatchObject({ revision });
    const always = meanwhile(ledger, () => touch(ledger));
    expect(await failure(resolveIssued(always, ref, NOW))).toMatchObject({ code: "unavailable" });
  });

  test("PI.04 a source that ends between the readings is seen at the second one", async () => {
    const ledger = await issued();
    const store = meanwhile(ledger, (time) => (time === 1 ? end(ledger.store(), bob) : undefined));
    expect(await failure(resolveIssued(store, ref, NOW))).toMatchObject({ code: "expired" });
  });

  test("PI.04 a caller of the legacy rail has none, and is told by the kind of the refusal", async () => {
    const ledger = await issued();
    const caller = { principal: principalOf(alice), uid: alice.uid };
    expect(await failure(callerAuthority(ledger.store(), "main", caller, NOW))).toMatchObject({
      code: "permission-denied",
      details: [{ kind: UNBOUND_CALLER }],
    });
    const rides = { ...caller, generation: ref.generation };
    expect(await callerAuthority(ledger.store(), "main", rides, NOW)).toMatchObject({ evidence: { ref } });
    for (const other of [
      { ...rides, uid: bob.uid },
      { ...rides, generation: generation(9) },
    ]) {
      expect(await failure(callerAuthority(ledger.store(), "main", other, NOW))).toMatchObject({
        code: "permission-denied",
      });
    }
  });
});

describe("PI.04 a renewal", () => {
  const ref = refOf(alice);
  const held = request(ref, {
    expiresAt: NOW + 100,
    sources: [handle("h1")],
    credential: { id: userKey("A"), expires: NOW + 9 },
  });
  const again = { ...held, credential: { id: userKey("B"), expires: NOW + 90 }, next: generation(2) };

  test("PI.04 under the same ceiling it keeps its generation, and both credentials are its own", async () => {
    const ledger = await born();
    await issue(ledger.store(), held);
    // The order in which sources are named is none of the ceiling's.
    const sources = [lifecycleOf(alice), handle("h1"), handle("h1")];
    expect(await renew(ledger.store(), { ...again, sources })).toEqual(ref);
    expect(ledger.row("issued", issuedKey.attempt(refOf(alice, 2)))).toBeUndefined();
    for (const key of [userKey("A"), userKey("B")]) {
      expect(AcceptedRow.parse(ledger.row("accepted", issuedKey.accepted(key)))).toMatchObject({ ref });
    }
    await resolveIssued(ledger.store(), ref, NOW);
    await retireIssuance(ledger.store(), ref, "x");
    expect([isActive(ledger, alice.uid, userKey("A")), isActive(ledger, alice.uid, userKey("B"))]).toEqual([
      false,
      false,
    ]);
  });

  const CHANGES = [
    { permissions: { ...CEILING, pub: { allow: [], deny: [] } } },
    { permissions: { ...CEILING, sub: { ...CEILING.sub, deny: ["cotal.main.>"] } } },
    { sources: [handle("h1"), lifecycleOf(bob)] },
    { sources: [] },
    { expiresAt: NOW + 101 },
  ];
  test.each(CHANGES)(
    "PI.04 under any other ceiling it gets the next generation, and the one before is over: %j",
    async (change) => {
      const ledger = await born();
      await issue(ledger.store(), held);
      for (const when of ["before", "after"] as const) {
        // Whatever it dies of, the same request goes on.
        for (let at = 1; at < 30; at += 1) {
          const died = await renew(ledger.store({ at, when }), { ...again, ...change }).then(
            () => false,
            (thrown: unknown) => {
              expect(thrown).toBeInstanceOf(Died);
              return true;
            },
          );
          if (!died) break;
        }
      }
      await resolveIssued(ledger.store(), refOf(alice, 2), NOW);
      expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "expired" });
      expect([isActive(ledger, alice.uid, userKey("A")), isActive(ledger, alice.uid, userKey("B"))]).toEqual([
        false,
        true,
      ]);
    },
  );

  test("PI.04 a takeover of its holder ends the credentials and leaves the issuance, to be renewed as it was", async () => {
    const ledger = await born();
    await issue(ledger.store(), held);
    await takeOver(
      ledger.store(),
      { principal: principalOf(alice), uid: alice.uid, opId: "t", fromEpoch: 1 },
      async () => {
        expect(isActive(ledger, alice.uid, userKey("A"))).toBe(false);
        expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "failed-precondition" });
      },
    );
    expect(await renew(ledger.store(), again)).toEqual(ref);
    expect([isActive(ledger, alice.uid, userKey("A")), isActive(ledger, alice.uid, userKey("B"))]).toEqual([
      false,
      true,
    ]);
  });
});

describe("W131L.02 what is redeemed under handles", () => {
  const entry = (one: typeof alice, key: string, ...ids: string[]) => ({
    principal: principalOf(one),
    uid: one.uid,
    credentialId: userKey(key),
    expires: NOW + 9,
    handles: ids.map(handle),
  });

  /** A parent, two children of it, a grandchild; and a stranger's. */
  async function redeemed(): Promise<MemoryLedger> {
    const ledger = await born();
    await enterDerived(ledger.store(), entry(alice, "A", "parent"));
    await enterDerived(ledger.store(), entry(bob, "B", "parent", "child"));
    await enterDerived(ledger.store(), entry(carol, "C", "parent", "child", "grandchild"));
    await enterDerived(ledger.store(), entry(carol, "D", "stranger"));
    return ledger;
  }
  const standing = (ledger: MemoryLedger) =>
    [alice, bob, carol, carol].flatMap(({ uid }, at) => {
      const key = userKey("ABCD"[at] ?? "");
      return isActive(ledger, uid, key) ? ["ABCD"[at]] : [];
    });

  test("W131L.02 each has one index row for each member of its chain, and the whole chain in its own row", async () => {
    const ledger = await redeemed();
    expect(
      ledger
        .keys("auth")
        .filter((key) => key.startsWith("bysrc."))
        .toSorted(),
    ).toEqual(
      [
        `bysrc.key1.parent.${alice.uid}.${userKey("A")}`,
        `bysrc.key1.parent.${bob.uid}.${userKey("B")}`,
        `bysrc.key1.child.${bob.uid}.${userKey("B")}`,
        `bysrc.key1.parent.${carol.uid}.${userKey("C")}`,
        `bysrc.key1.child.${carol.uid}.${userKey("C")}`,
        `bysrc.key1.grandchild.${carol.uid}.${userKey("C")}`,
        `bysrc.key1.stranger.${carol.uid}.${userKey("D")}`,
      ].toSorted(),
    );
    expect(credential(ledger, carol.uid, userKey("C"))?.sourceChain).toEqual([
      "handle.key1.parent",
      "handle.key1.child",
      "handle.key1.grandchild",
    ]);
  });

  test.each([
    ["parent", ["D"]],
    ["child", ["A", "D"]],
    ["grandchild", ["A", "B", "D"]],
    ["stranger", ["A", "B", "C"]],
  ])(
    "W131L.02 W131L.03 revoking %s ends whatever has it in its lineage, and nothing else; dead anywhere, it goes on",
    async (id, left) => {
      const gone = 4 - left.length;
      for (const when of ["before", "after"] as const) {
        // The gate, and each credential.
        for (let at = 1; at <= gone + 1; at += 1) {
          const ledger = await redeemed();
          await expect(revokeHandle(ledger.store({ at, when }), handle(id))).rejects.toThrow(Died);
          // From the first write on nothing new comes under it.
          const late = await enterDerived(ledger.store(), entry(bob, "E", id)).then(() => "in", codeOf);
          expect(late).toBe(at === 1 && when === "before" ? "in" : "expired");
          const revoked = await revokeHandle(ledger.store(), handle(id));
          expect(standing(ledger)).toEqual(left);
          expect(revoked).toHaveLength(late === "in" ? gone + 1 : gone);
          expect(isActive(ledger, bob.uid, userKey("E"))).toBe(false);
        }
      }
    },
  );

  test("W131L.02 a handle that nobody has redeemed is revoked all the same", async () => {
    const ledger = await born();
    expect(await revokeHandle(ledger.store(), handle("fresh"))).toEqual([]);
    expect(await failure(enterDerived(ledger.store(), entry(alice, "A", "fresh")))).toMatchObject({ code: "expired" });
    expect(credential(ledger, alice.uid, userKey("A"))).toBeUndefined();
  });

  test("W131L.02 W131L.03 in every order of a redemption and a revocation of its parent: revoked is revoked", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const redeeming = enterDerived(stepped(ledger.store(), scheduler), entry(alice, "A", "parent", "child")).catch(
          unlessOurs,
        );
        const revoking = revokeHandle(stepped(ledger.store(), scheduler), handle("parent"));
        await scheduler.waitFor(Promise.all([redeeming, revoking]));
        expect(isActive(ledger, alice.uid, userKey("A"))).toBe(false);
      }),
      { numRuns: 200 },
    );
  }, 60_000);

  test("W131L.02 a key in an index that is none stops the revocation by its name", async () => {
    const ledger = await redeemed();
    ledger.put("auth", "bysrc.key1.parent.nobody.x", { v: 1 });
    expect(await failure(revokeHandle(ledger.store(), handle("parent")))).toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining("bysrc.key1.parent.nobody.x") as string,
    });
  });
});

describe("PI.06 the end of a lifecycle", () => {
  test("PI.06 what an issuance that died wrote between the halves of the end is retired by the second", async () => {
    const ledger = await born();
    const op = `retire-${bob.uid}`;
    await beginRetirement(ledger.store(), principalOf(bob), op, bob.uid);
    // Attempt, evidence, and the index row of each of its two sources: then it meets the shut gate.
    const dying = ledger.store({ at: 4, when: "after" });
    await expect(issue(dying, request(refOf(alice), { sources: [lifecycleOf(bob)] }))).rejects.toThrow(Died);
    expect(attemptOf(ledger, refOf(alice))).toMatchObject({ state: "prepared" });
    await completeRetirement(ledger.store(), principalOf(bob), bob.uid, op, {}, nothing);
    expect(attemptOf(ledger, refOf(alice))).toMatchObject({ state: "retired", by: op });
  });

  test("PI.06 retires what it holds, what comes from it, and what was cut from that; the others stand", async () => {
    const ledger = await born();
    const key = (letter: string) => ({ id: userKey(letter), expires: NOW + 9 });
    await issue(ledger.store(), request(refOf(bob), { credential: key("A") }));
    await issue(ledger.store(), request(refOf(alice), { sources: [lifecycleOf(bob)], credential: key("B") }));
    const cut: Source = { kind: "issued", ref: refOf(alice) };
    await issue(ledger.store(), request(refOf(carol), { sources: [cut], credential: key("C") }));
    await issue(ledger.store(), request(refOf(carol, 2), { credential: key("D") }));
    const begun = await beginRetirement(ledger.store(), principalOf(bob), `retire-${bob.uid}`, bob.uid);
    expect([...begun.users].toSorted()).toEqual(["A", "B", "C"].map(userKey));
    expect(begun.others).toEqual([principalOf(alice), principalOf(carol)]);
    for (const ref of [refOf(bob), refOf(alice), refOf(carol)]) {
      expect(attemptOf(ledger, ref)).toMatchObject({ state: "retired", by: `retire-${bob.uid}` });
      expect(await failure(resolveIssued(ledger.store(), ref, NOW))).toMatchObject({ code: "expired" });
    }
    await resolveIssued(ledger.store(), refOf(carol, 2), NOW);
    expect(isActive(ledger, carol.uid, userKey("D"))).toBe(true);
    // Asked again, it names the same holders: their connections may still be there.
    const again = await beginRetirement(ledger.store(), principalOf(bob), `retire-${bob.uid}`, bob.uid);
    expect(again.others).toEqual(begun.others);
  });
});
