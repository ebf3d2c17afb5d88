/**
 * A process that stops in the middle (a pause, a swap, a stopped container) and goes on when the ledger has
 * moved on: what it still does must harm nobody who came after.
 */
import { describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { containedIn } from "../../shared/protocol/base/channels.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { AclRow } from "../../shared/protocol/ledger/rows.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, NOW_MS, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
const GRANT = { ...alice, ...EVERYTHING, name: "Alice", kind: "interactive" } as const;

type Step = { readonly kind: "read" | "create" | "cas"; readonly key: string };

/** A process's view of the ledger that stands still before the first step like this one, until told to go on. */
function pausedBefore(store: LedgerStore, isIt: (step: Step) => boolean) {
  let reach = (): void => undefined;
  let goOn = (): void => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const going = new Promise<void>((resolve) => (goOn = resolve));
  let isPast = false;
  const pass = async (step: Step): Promise<void> => {
    if (isPast || !isIt(step)) return;
    isPast = true;
    reach();
    await going;
  };
  const paused: LedgerStore = {
    ...store,
    read: async (bucket, key) => pass({ kind: "read", key }).then(() => store.read(bucket, key)),
    create: async (bucket, key, value) => pass({ kind: "create", key }).then(() => store.create(bucket, key, value)),
    cas: async (bucket, key, value, revision) =>
      pass({ kind: "cas", key }).then(() => store.cas(bucket, key, value, revision)),
  };
  return { store: paused, reached, goOn: () => goOn() };
}

describe("an enrolment that goes on after its grant was revoked and given anew", () => {
  test.each(["stage.", "uid.", "gate.", "lifecycle.", `${OWNER}.alice.`])(
    "W131L.14 W10.08 stopped before it creates %s: the name is not lost",
    async (lead) => {
      const ledger = memoryLedger();
      const operator = createAuthority(memoryParts(ledger.store()));
      await operator.grant(GRANT);
      const late = pausedBefore(ledger.store(), ({ kind, key }) => kind === "create" && key.startsWith(lead));
      const lost = failure(createAuthority(memoryParts(late.store)).enrol(alice, SIGN_IN));
      await late.reached;
      await operator.revoke(alice);
      const again = await operator.grant(GRANT);
      late.goOn();
      await lost;
      const { uid } = await operator.enrol(alice, SIGN_IN);
      expect(uid).toBe(again.lifecycleUid);
    },
  );
});

describe("a lifecycle that has let nobody in", () => {
  const nobodyCanTell = { kind: "unknown", code: ErrorCode.Unimplemented, why: "a cluster", next: "wait" } as const;

  test.each([
    ["never began", undefined],
    ["stopped before its head", "create lifecycle."],
    ["stopped before its gate opened", "cas gate."],
  ])("§13.1 %s: its name is given anew without a proof that nobody is connected", async (_, lead) => {
    const ledger = memoryLedger();
    const connectionsOf = () => Promise.resolve(nobodyCanTell);
    const operator = createAuthority(memoryParts(ledger.store(), { connectionsOf }));
    await operator.grant(GRANT);
    if (lead !== undefined) {
      const late = pausedBefore(ledger.store(), ({ kind, key }) => `${kind} ${key}`.startsWith(lead));
      void createAuthority(memoryParts(late.store)).enrol(alice, SIGN_IN);
      await late.reached;
    }
    await operator.revoke(alice);
    const { lifecycleUid } = await operator.grant(GRANT);
    expect((await operator.enrol(alice, SIGN_IN)).uid).toBe(lifecycleUid);
  });

  test("§13.1 one that has may still be connected: the proof is asked for", async () => {
    const ledger = memoryLedger();
    const connectionsOf = () => Promise.resolve(nobodyCanTell);
    const operator = createAuthority(memoryParts(ledger.store(), { connectionsOf }));
    await operator.enrol(alice, SIGN_IN);
    await operator.revoke(alice);
    expect(await failure(operator.grant(GRANT))).toMatchObject({ code: ErrorCode.Unimplemented });
  });
});

describe("a revocation that goes on after the name was given anew", () => {
  test("W131L.05 W10.08 ends nobody but the lifecycle it was for", async () => {
    const ledger = memoryLedger();
    const operator = createAuthority(memoryParts(ledger.store()));
    const { uid: old } = await operator.enrol(alice, SIGN_IN);
    let heads = 0;
    // Between its two looks at the head.
    const late = pausedBefore(
      ledger.store(),
      ({ kind, key }) => kind === "read" && key.startsWith("lifecycle.") && ++heads === 2,
    );
    const revoking = createAuthority(memoryParts(late.store)).revoke(alice);
    await late.reached;
    await operator.grant(GRANT);
    const fresh = await operator.enrol(alice, SIGN_IN);
    expect(fresh.uid).not.toBe(old);
    late.goOn();
    await revoking;
    expect(ledger.row("auth", `gate.${fresh.uid}`)).toMatchObject({ state: "open" });
    const act = { ...alice, lifecycleUid: fresh.uid, credentialId: fresh.credentialId };
    expect(await operator.check(act)).toMatchObject({ ok: true });
  });
});

describe("an enrolment during which the grant is narrowed", () => {
  test.each(["stage.", "gate.", "lifecycle.", `${OWNER}.alice.`])(
    "W9.18 stopped before it creates %s: the first read list is not wider than the row",
    async (lead) => {
      const ledger = memoryLedger();
      const operator = createAuthority(memoryParts(ledger.store()));
      await operator.grant(GRANT);
      const late = pausedBefore(ledger.store(), ({ kind, key }) => kind === "create" && key.startsWith(lead));
      const enrolling = createAuthority(memoryParts(late.store)).enrol(alice, SIGN_IN);
      await late.reached;
      await operator.narrow(alice, { allowSubscribe: ["general"] });
      late.goOn();
      const { uid } = await enrolling;
      const row = ActorRow.parse(ledger.row("auth", `actor.${OWNER}.alice`));
      const acl = AclRow.parse(ledger.row("acl", `${OWNER}.alice.${uid}`));
      expect(acl.allowSubscribe.filter((entry) => containedIn(row.allowSubscribe, entry) === undefined)).toEqual([]);
    },
  );
});

describe("an exchange that loses to an operation which reopens the gate", () => {
  test("W131L.07 releases nothing, and leaves the root alone that others come in with", async () => {
    const ledger = memoryLedger();
    let now = NOW_MS;
    const authority = createAuthority(memoryParts(ledger.store()));
    const { uid, credentialId } = await authority.enrol(alice, SIGN_IN);
    now += 60_000;
    const late = pausedBefore(ledger.store(), ({ kind, key }) => kind === "cas" && key.startsWith("gate."));
    const lost = failure(createAuthority(memoryParts(late.store, { now: () => now })).enrol(alice, SIGN_IN));
    await late.reached;
    const op = { opId: "dead", kind: "takeover" } as const;
    ledger.put("auth", `gate.${uid}`, { state: "frozen", generation: 1, op });
    late.goOn();
    // It may come again: what holds the gate now opens it in the end.
    expect(await lost).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed" });
    // A dead operation's obligation is completed at the unchanged coordinate, one generation on.
    ledger.put("auth", `gate.${uid}`, { state: "open", generation: 2 });
    expect(await authority.enrol(alice, SIGN_IN)).toMatchObject({ uid, credentialId });
    expect(await authority.check({ ...alice, lifecycleUid: uid, credentialId })).toMatchObject({ ok: true });
  });
});

describe("an owner's actors", () => {
  test("many new names at once are no more than are allowed", async () => {
    const ledger = memoryLedger();
    const authority = createAuthority(memoryParts(ledger.store(), { actorsPerOwner: 3 }));
    const names = Array.from({ length: 12 }, (_, at) => ({ owner: OWNER, actor: `name_${at}` }));
    const all = await Promise.allSettled(names.map((p) => authority.enrol(p, SIGN_IN)));
    expect(all.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
    expect(ledger.keys("auth").filter((key) => key.startsWith("actor."))).toHaveLength(3);
    expect(await failure(authority.enrol({ owner: OWNER, actor: "more" }, SIGN_IN))).toMatchObject({
      code: ErrorCode.ResourceExhausted,
    });
  });
});

describe("a role that is granted later", () => {
  test("§8 its queue is there before anybody holds it", async () => {
    const ledger = memoryLedger();
    const parts = memoryParts(ledger.store());
    const authority = createAuthority(parts);
    const { uid } = await authority.enrol(alice, SIGN_IN);
    await authority.grant({ ...GRANT, role: "reviewer" });
    expect(parts.made).toEqual([`${OWNER}.alice.${uid}.-`, "queue reviewer"]);
  });
});
