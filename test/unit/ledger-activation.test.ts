/** Activation and the entry of a credential (§13.1): crashes at every write, races, and refusals. */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ActivationRequest, activate } from "../../shared/ledger/activation.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { takeEpoch } from "../../shared/ledger/epoch.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { type MemoryLedger, crashLoop, memoryLedger } from "../support/memory-ledger.ts";

const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
const HEAD = "lifecycle.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
const USER = `U${"A".repeat(55)}`;

/** Random bytes that differ from call to call and from seed to seed. */
function seeded(seed: string): (count: number) => Uint8Array {
  let call = 0;
  return (count) => {
    call += 1;
    return createHash("sha512").update(`${seed}/${call}`).digest().subarray(0, count);
  };
}

function request(opId: string, change: Partial<ActivationRequest> = {}): ActivationRequest {
  return {
    opId,
    principal: alice,
    requestDigest: "digest",
    managerInstance: "instance",
    now: 1,
    // A retry in a new process draws anew: only the stage makes it the same lifecycle.
    random: seeded(`${opId}${Math.random()}`),
    ...change,
  };
}

const nothing = async (): Promise<void> => undefined;

async function issue(store: LedgerStore, opId: string, credentialId = USER): Promise<string> {
  const { uid } = await activate(store, request(opId), nothing);
  await enterCredential(store, { principal: alice, uid, credentialId, expires: 100 });
  return uid;
}

describe("a virgin alias", () => {
  test("the writes stand in the normative order", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    expect(ledger.writes).toEqual([
      "auth/stage.op1.activation",
      `records/uid.${uid}`,
      `auth/gate.${uid}`,
      `records/${HEAD}`,
      `auth/gate.${uid}`,
      `auth/cred.${uid}.${USER}`,
      `auth/gate.${uid}`,
      `records/${HEAD}`,
    ]);
    expect(ledger.row("auth", `gate.${uid}`)).toEqual({ state: "open", generation: 1 });
    expect(ledger.row("records", HEAD)).toEqual({
      ...alice,
      lifecycleUid: uid,
      managerInstance: "instance",
      processEpoch: 1,
      state: "active",
      currentCredentialId: USER,
    });
    expect(ledger.row("auth", `cred.${uid}.${USER}`)).toMatchObject({
      state: "active",
      exp: 100,
      sourceChain: ["root"],
    });
  });

  test("W131.17 what the lifecycle needs, its frontiers too, is made after the head is active and before the gate opens", async () => {
    const ledger = memoryLedger();
    const seen: unknown[] = [];
    const { uid } = await activate(ledger.store(), request("op1"), async (activated) => {
      seen.push(ledger.row("records", HEAD), ledger.row("auth", `gate.${activated.uid}`));
    });
    expect(seen).toEqual([
      expect.objectContaining({ state: "active", lifecycleUid: uid }),
      expect.objectContaining({ state: "frozen" }),
    ]);
  });

  test("a UID that was drawn before the ledger existed is taken as it is", async () => {
    const uid = "z".repeat(26);
    const activated = await activate(
      memoryLedger().store(),
      request("op1", { uid, inboxNonce: "n".repeat(22) }),
      nothing,
    );
    expect(activated).toEqual({ uid, inboxNonce: "n".repeat(22) });
  });
});

describe("W131L.07 an entry that loses to a freeze", () => {
  test("W131L.07 revokes its own row, which the freezing operation may not have seen, and releases nothing", async () => {
    const ledger = memoryLedger();
    const store = ledger.store();
    const { uid } = await activate(store, request("op1"), nothing);
    const key = `cred.${uid}.${USER}`;
    const late: typeof store = {
      ...store,
      create: async (bucket, at, value) => {
        const revision = await store.create(bucket, at, value);
        if (at === key) {
          ledger.put("auth", `gate.${uid}`, { state: "frozen", generation: 1, op: { opId: "x", kind: "retirement" } });
        }
        return revision;
      },
    };
    const entry = { principal: alice, uid, credentialId: USER, expires: 100 };
    await expect(enterCredential(late, entry)).rejects.toMatchObject({ code: "failed-precondition" });
    expect(ledger.row("auth", key)).toMatchObject({ state: "revoked" });
    expect(ledger.row("records", HEAD)).not.toHaveProperty("currentCredentialId");
  });

  test("leaves a row alone that was there before it", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    ledger.put("auth", `gate.${uid}`, { state: "frozen", generation: 1, op: { opId: "x", kind: "takeover" } });
    const entry = { principal: alice, uid, credentialId: USER, expires: 200 };
    await expect(enterCredential(ledger.store(), entry)).rejects.toMatchObject({ code: "unavailable" });
    expect(ledger.row("auth", `cred.${uid}.${USER}`)).toMatchObject({ state: "active", exp: 100 });
  });

  test("entries of one lifecycle at once all succeed", async () => {
    const ledger = memoryLedger();
    const { uid } = await activate(ledger.store(), request("op1"), nothing);
    const entry = { principal: alice, uid, credentialId: USER, expires: 100 };
    await Promise.all(Array.from({ length: 4 }, () => enterCredential(ledger.store(), entry)));
    expect(ledger.row("records", HEAD)).toMatchObject({ currentCredentialId: USER });
  });
});

describe("a crash at any write converges under the same operation", () => {
  test.each(["before", "after"] as const)("dying %s each write in turn", async (when) => {
    const ledger = memoryLedger();
    const { value: uid, deaths } = await crashLoop(ledger, when, (store) => issue(store, "op1"));
    expect(deaths).toBeGreaterThanOrEqual(5);
    // One lifecycle, however often it was begun.
    expect(ledger.keys("records").filter((key) => key.startsWith("uid."))).toEqual([`uid.${uid}`]);
    expect(ledger.row("auth", `gate.${uid}`)).toEqual({ state: "open", generation: 1 });
    expect(ledger.row("records", HEAD)).toMatchObject({ lifecycleUid: uid, currentCredentialId: USER });
  });

  test("a retry after the end changes nothing but the gate's touch", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    const before = ledger.writes.length;
    expect(await issue(ledger.store(), "op1")).toBe(uid);
    expect(ledger.writes.slice(before)).toEqual([`auth/gate.${uid}`]);
  });

  test("a prepare that fails leaves the gate frozen, and the next try finishes", async () => {
    const ledger = memoryLedger();
    const broken = async () => {
      throw new CotalError("unavailable", "the broker is away");
    };
    await expect(activate(ledger.store(), request("op1"), broken)).rejects.toMatchObject({ code: "unavailable" });
    const uid = await issue(ledger.store(), "op1");
    expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "open" });
  });

  test("the same operation with other arguments is a conflict", async () => {
    const ledger = memoryLedger();
    await issue(ledger.store(), "op1");
    const other = activate(ledger.store(), request("op1", { requestDigest: "other" }), nothing);
    await expect(other).rejects.toMatchObject({ code: "conflict", outcome: "not-executed" });
  });
});

describe("an alias that is taken", () => {
  test("a second activation is refused; its own gate is retired and its UID stays burned", async () => {
    const ledger = memoryLedger();
    const winner = await issue(ledger.store(), "op1");
    await expect(issue(ledger.store(), "op2")).rejects.toMatchObject({
      code: "already-exists",
      outcome: "not-executed",
    });
    const loser = ledger.keys("records").find((key) => key.startsWith("uid.") && !key.endsWith(winner));
    expect(ledger.row("auth", `gate.${loser?.slice(4) ?? ""}`)).toMatchObject({
      state: "retired",
      op: { opId: "op2" },
    });
    expect(ledger.row("records", HEAD)).toMatchObject({ lifecycleUid: winner });
    // Trying again does not revive it.
    await expect(issue(ledger.store(), "op2")).rejects.toMatchObject({ code: "already-exists" });
  });

  test.each(["before", "after"] as const)(
    "a loser that dies %s each write still ends refused and retired",
    async (when) => {
      const ledger = memoryLedger();
      const winner = await issue(ledger.store(), "op1");
      await expect(crashLoop(ledger, when, (store) => issue(store, "op2"))).rejects.toMatchObject({
        code: "already-exists",
      });
      const gates = ledger.keys("auth").filter((key) => key.startsWith("gate.") && !key.endsWith(winner));
      expect(gates.map((key) => ledger.row("auth", key))).toEqual([expect.objectContaining({ state: "retired" })]);
    },
  );

  test("a foreign UID can't be taken", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    const bob = { owner: alice.owner, actor: "bob" };
    const stolen = activate(ledger.store(), request("op2", { principal: bob, uid }), nothing);
    await expect(stolen).rejects.toMatchObject({ code: "conflict" });
    expect(ledger.row("records", "lifecycle.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.bob")).toBeUndefined();
  });
});

/** The store's steps, released one by one in an order that fast-check chooses. */
function scheduled(s: fc.Scheduler, store: LedgerStore): LedgerStore {
  const step = async <T>(act: () => Promise<T>): Promise<T> => {
    await s.schedule(Promise.resolve());
    return act();
  };
  return {
    read: (...args) => step(() => store.read(...args)),
    create: (...args) => step(() => store.create(...args)),
    cas: (...args) => step(() => store.cas(...args)),
    scan: (...args) => step(() => store.scan(...args)),
    keys: (...args) => step(() => store.keys(...args)),
  };
}

/** Repeats what lost a race, as a caller does. */
async function persist<T>(run: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof CotalError) || error.code !== "conflict" || attempt === 20) throw error;
    }
  }
}

const settle = async <T>(promise: Promise<T>) => (await Promise.allSettled([promise]))[0];

describe("races", () => {
  test("of any number of activations of one alias exactly one wins; every loser's gate is retired", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.integer({ min: 2, max: 4 }), async (s, racers) => {
        const ledger = memoryLedger();
        const runs = Array.from({ length: racers }, (_, at) =>
          settle(issue(scheduled(s, ledger.store()), `op${at}`, `U${"ABCDEFG".charAt(at).repeat(55)}`)),
        );
        const ends = await s.waitFor(Promise.all(runs));
        const winners = ends.flatMap((end) => (end?.status === "fulfilled" ? [end.value] : []));
        expect(winners).toHaveLength(1);
        const lost = ends.flatMap((end) => (end?.status === "rejected" ? [(end.reason as CotalError).code] : []));
        expect(lost).toEqual(Array(racers - 1).fill("already-exists"));
        expect(ledger.row("records", HEAD)).toMatchObject({ lifecycleUid: winners[0], state: "active" });
        expectOneOpenGate(ledger, winners[0] ?? "");
      }),
      { numRuns: 150 },
    );
  });

  test("of a retirement and a credential, either the retirement revokes it or it never leaves", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (s) => {
        const ledger = memoryLedger();
        const { uid } = await activate(ledger.store(), request("op1"), nothing);
        const entry = { principal: alice, uid, credentialId: USER, expires: 100 };
        const issuing = settle(persist(() => enterCredential(scheduled(s, ledger.store()), entry)));
        const retiring = persist(() => beginRetirement(scheduled(s, ledger.store()), alice, "op2"));
        const [issued, retired] = await s.waitFor(Promise.all([issuing, retiring]));
        const left = issued?.status === "fulfilled";
        expect(left && !retired.users.includes(USER)).toBe(false);
        expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "frozen", op: { opId: "op2" } });
      }),
      { numRuns: 300 },
    );
  });

  test("of many starts of one process each has an epoch of its own", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (s) => {
        const ledger = memoryLedger();
        const uid = await issue(ledger.store(), "op1");
        const runs = Array.from({ length: 4 }, () => takeEpoch(scheduled(s, ledger.store()), alice, uid));
        const epochs = await s.waitFor(Promise.all(runs));
        expect(new Set(epochs)).toEqual(new Set([2, 3, 4, 5]));
      }),
      { numRuns: 60 },
    );
  });

  function expectOneOpenGate(ledger: MemoryLedger, winner: string): void {
    const gates = ledger.keys("auth").filter((key) => key.startsWith("gate."));
    const states = gates.map((key) => [key, (ledger.row("auth", key) as { state: string }).state]);
    expect(states.filter(([, state]) => state !== "retired")).toEqual([[`gate.${winner}`, "open"]]);
  }
});

describe("who gets no credential", () => {
  const entry = (uid: string) => ({ principal: alice, uid, credentialId: USER, expires: 100 });

  test("a gate that is frozen, retired or not there", async () => {
    const ledger = memoryLedger();
    await expect(enterCredential(ledger.store(), entry("y".repeat(26)))).rejects.toMatchObject({
      code: "failed-precondition",
    });
    const uid = await issue(ledger.store(), "op1");
    for (const [state, kind, code] of [
      // What opens again is waited for; an end is the last word.
      ["frozen", "takeover", "unavailable"],
      ["frozen", "registration", "unavailable"],
      ["frozen", "retirement", "failed-precondition"],
      ["retired", "retirement", "failed-precondition"],
    ]) {
      ledger.put("auth", `gate.${uid}`, { state, generation: 1, op: { opId: "x", kind } });
      await expect(enterCredential(ledger.store(), entry(uid))).rejects.toMatchObject({
        code,
        next: expect.stringContaining("doctor") as string,
      });
    }
    expect(ledger.keys("auth").filter((key) => key.startsWith("cred."))).toHaveLength(1);
  });

  test("W10.08 a credential that was revoked, and a lifecycle that is not the alias's current one", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    const row = ledger.row("auth", `cred.${uid}.${USER}`) as object;
    ledger.put("auth", `cred.${uid}.${USER}`, { ...row, state: "revoked" });
    await expect(enterCredential(ledger.store(), entry(uid))).rejects.toMatchObject({ code: "failed-precondition" });
    ledger.put("auth", `cred.${uid}.${USER}`, row);
    const head = ledger.row("records", HEAD) as object;
    ledger.put("records", HEAD, { ...head, lifecycleUid: "y".repeat(26) });
    await expect(enterCredential(ledger.store(), entry(uid))).rejects.toMatchObject({ code: "failed-precondition" });
    await expect(takeEpoch(ledger.store(), alice, uid)).rejects.toMatchObject({ code: "failed-precondition" });
  });

  test("a renewal under the same key only moves the end, and never back", async () => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    await enterCredential(ledger.store(), { ...entry(uid), expires: 300 });
    await enterCredential(ledger.store(), { ...entry(uid), expires: 200 });
    expect(ledger.row("auth", `cred.${uid}.${USER}`)).toMatchObject({ exp: 300, state: "active" });
  });
});

describe("corruption decides nothing", () => {
  test.each<[string, (ledger: MemoryLedger, uid: string) => void]>([
    ["a deleted head", (ledger) => ledger.mark("records", HEAD)],
    [
      "a head of another alias",
      (ledger) => ledger.put("records", HEAD, { ...(ledger.row("records", HEAD) as object), actor: "bob" }),
    ],
    [
      "a head with an unknown field",
      (ledger) => ledger.put("records", HEAD, { ...(ledger.row("records", HEAD) as object), x: 1 }),
    ],
    ["a head that is no JSON", (ledger) => ledger.put("records", HEAD, undefined)],
  ])("%s", async (_what, spoil) => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    spoil(ledger, uid);
    const before = ledger.row("records", HEAD);
    await expect(issue(ledger.store(), "op2")).rejects.toMatchObject({
      code: expect.stringMatching(/^(failed-precondition|conflict)$/) as string,
    });
    expect(ledger.row("records", HEAD)).toEqual(before);
  });

  test.each(["uid", "gate"])("a deleted %s row refuses by its name", async (family) => {
    const ledger = memoryLedger();
    const uid = await issue(ledger.store(), "op1");
    ledger.mark(family === "uid" ? "records" : "auth", `${family}.${uid}`);
    await expect(activate(ledger.store(), request("op1"), nothing)).rejects.toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(`${family}.${uid}`) as string,
    });
  });
});

describe("the whole life of an alias, over and over", () => {
  test("each lifecycle has a UID of its own, and only the last one is active", async () => {
    const ledger = memoryLedger();
    const uids: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      const uid = await issue(ledger.store(), `op${round}`);
      uids.push(uid);
      const { opId } = await beginRetirement(ledger.store(), alice, `end${round}`);
      await completeRetirement(ledger.store(), alice, uid, opId, { DM_main: round }, nothing);
    }
    expect(new Set(uids).size).toBe(5);
    const last = await issue(ledger.store(), "op9");
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "active", lifecycleUid: last });
    for (const uid of uids) expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "retired" });
  });
});
