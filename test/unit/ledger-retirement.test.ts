/** The end of a lifecycle (§13.1): both halves under crashes at every write, and what stays refused. */
import { describe, expect, test } from "vitest";
import { activate } from "../../shared/ledger/activation.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { revokeFamily } from "../../shared/ledger/family.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { type Death, type MemoryLedger, crashLoop, memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
const HEAD = "lifecycle.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
const USER = `U${"A".repeat(55)}`;
const UID = "q".repeat(26);
const OTHER_UID = "r".repeat(26);
const STREAMS = { CHAT_main: 7, DM_main: 9 };

async function born(uid = UID, opId = "birth", ledger = memoryLedger()): Promise<MemoryLedger> {
  const request = {
    opId,
    principal: alice,
    requestDigest: "d",
    managerInstance: "m",
    uid,
    now: 1,
    random: (count: number) => new Uint8Array(count),
  };
  await activate(ledger.store(), request, async () => undefined);
  await enterCredential(ledger.store(), { principal: alice, uid, credentialId: USER, expires: 100 });
  return ledger;
}

/** Both halves in one process. */
async function retire(store: LedgerStore, opId: string): Promise<readonly string[]> {
  const begun = await beginRetirement(store, alice, opId);
  await completeRetirement(store, alice, begun.uid, begun.opId, STREAMS, async () => undefined);
  return begun.users;
}

describe("the two halves", () => {
  test("first the gate is frozen, then the head is retiring, then the credential revoked", async () => {
    const ledger = await born();
    const before = ledger.writes.length;
    const begun = await beginRetirement(ledger.store(), alice, "end");
    expect(begun).toEqual({ uid: UID, opId: "end", users: [USER], others: [] });
    expect(ledger.writes.slice(before)).toEqual([`auth/gate.${UID}`, `records/${HEAD}`, `auth/cred.${UID}.${USER}`]);
    expect(ledger.row("auth", `gate.${UID}`)).toMatchObject({
      state: "frozen",
      op: { opId: "end", kind: "retirement" },
    });
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "retiring", op: { opId: "end" } });
    expect(ledger.row("auth", `cred.${UID}.${USER}`)).toMatchObject({ state: "revoked" });
  });

  test("every credential that the lifecycle ever had is revoked and told, not only the current one", async () => {
    const ledger = await born();
    const later = `U${"B".repeat(55)}`;
    const other = `U${"C".repeat(55)}`;
    await enterCredential(ledger.store(), { principal: alice, uid: UID, credentialId: later, expires: 200 });
    ledger.put("auth", `cred.${OTHER_UID}.${other}`, { state: "active" });
    const { users } = await beginRetirement(ledger.store(), alice, "end");
    expect(users.toSorted()).toEqual([USER, later]);
    for (const user of [USER, later]) {
      expect(ledger.row("auth", `cred.${UID}.${user}`)).toMatchObject({ state: "revoked" });
    }
    // A run that died comes again, and must tell the broker of the same ones.
    expect((await beginRetirement(ledger.store(), alice, "end")).users.toSorted()).toEqual([USER, later]);
    expect(ledger.row("auth", `cred.${OTHER_UID}.${other}`)).toEqual({ state: "active" });
  });

  test("a family is counted under a shut gate only: under an open one a row could still come and be released", async () => {
    const ledger = await born();
    expect(await failure(revokeFamily(ledger.store(), UID))).toMatchObject({ code: "failed-precondition" });
    expect(ledger.row("auth", `cred.${UID}.${USER}`)).toMatchObject({ state: "active" });
    await beginRetirement(ledger.store(), alice, "end");
    // A row of it that was deleted is no row that is not there.
    ledger.mark("auth", `cred.${UID}.${USER}`);
    expect(String(await failure(revokeFamily(ledger.store(), UID)))).toContain(`cred.${UID}.${USER} was deleted`);
  });

  test("then the frontier, the clean-up, the gate, and last the head, which frees the alias", async () => {
    const ledger = await born();
    await beginRetirement(ledger.store(), alice, "end");
    const before = ledger.writes.length;
    const seen: string[] = [];
    await completeRetirement(ledger.store(), alice, UID, "end", STREAMS, async () => {
      seen.push(...ledger.writes.slice(before));
    });
    expect(seen).toEqual([`records/frontier.${UID}`]);
    expect(ledger.writes.slice(before)).toEqual([`records/frontier.${UID}`, `auth/gate.${UID}`, `records/${HEAD}`]);
    expect(ledger.row("records", `frontier.${UID}`)).toEqual({ lifecycleUid: UID, opId: "end", streams: STREAMS });
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "retired", lifecycleUid: UID });
    expect(ledger.row("records", HEAD)).not.toHaveProperty("op");
  });

  test("a frontier is recorded once: a retry with other numbers keeps the first", async () => {
    const ledger = await born();
    await beginRetirement(ledger.store(), alice, "end");
    const failing = completeRetirement(ledger.store(), alice, UID, "end", STREAMS, async () => {
      throw new Error("clean-up failed");
    });
    await expect(failing).rejects.toThrow("clean-up failed");
    await completeRetirement(ledger.store(), alice, UID, "end", { DM_main: 99 }, async () => undefined);
    expect(ledger.row("records", `frontier.${UID}`)).toMatchObject({ streams: STREAMS });
  });
});

describe("an activation that died, and whose key is lost", () => {
  test("is ended like any other lifecycle; its own retry then refuses, and the alias is free", async () => {
    const ledger = memoryLedger();
    const request = {
      opId: "birth",
      principal: alice,
      requestDigest: "d",
      managerInstance: "m",
      uid: UID,
      now: 1,
      random: (count: number) => new Uint8Array(count),
    };
    const dying = activate(ledger.store(), request, () => Promise.reject(new Error("died")));
    await expect(dying).rejects.toThrow("died");
    const begun = await beginRetirement(ledger.store(), alice, "end");
    expect(begun).toEqual({ uid: UID, opId: "end", users: [], others: [] });
    await expect(activate(ledger.store(), request, async () => undefined)).rejects.toMatchObject({
      code: "failed-precondition",
    });
    await completeRetirement(ledger.store(), alice, UID, "end", STREAMS, async () => undefined);
    await born(OTHER_UID, "second", ledger);
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "active", lifecycleUid: OTHER_UID });
  });
});

const WRITES = [1, 2, 3];
const DEATHS = (["before", "after"] as const).flatMap((when) => WRITES.map((at): Death => ({ at, when })));

describe("a crash at any write converges", () => {
  test.each(DEATHS)("dying $when write $at of each half; the retry comes under another id", async (death) => {
    const ledger = await born();
    await Promise.allSettled([beginRetirement(ledger.store(death), alice, "end1")]);
    const { uid, opId, users } = await beginRetirement(ledger.store(), alice, "end2");
    // The user keys that the broker must refuse are told by the run that ends, too.
    expect([uid, users]).toEqual([UID, [USER]]);
    let cleaned = 0;
    const complete = (store: LedgerStore) =>
      completeRetirement(store, alice, uid, opId, STREAMS, async () => void (cleaned += 1));
    await Promise.allSettled([complete(ledger.store(death))]);
    await complete(ledger.store());
    expect(cleaned).toBeGreaterThan(0);
    await expectRetired(ledger);
  });

  test.each(["before", "after"] as const)("dying %s one write more at each try", async (when) => {
    const ledger = await born();
    const { value } = await crashLoop(ledger, when, (store) => beginRetirement(store, alice, "end"));
    await crashLoop(ledger, when, (store) =>
      completeRetirement(store, alice, value.uid, value.opId, STREAMS, async () => undefined),
    );
    await expectRetired(ledger);
  });

  /** All of it has ended, and the alias is free for another lifecycle. */
  async function expectRetired(ledger: MemoryLedger): Promise<void> {
    expect(ledger.row("auth", `gate.${UID}`)).toMatchObject({ state: "retired" });
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "retired", lifecycleUid: UID });
    expect(ledger.row("auth", `cred.${UID}.${USER}`)).toMatchObject({ state: "revoked" });
    await born(OTHER_UID, "birth2", ledger);
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "active", lifecycleUid: OTHER_UID });
  }

  test.each<Death["when"]>(["before", "after"])(
    "whenever the alias is free, the old gate is retired: dying %s the last writes",
    async (when) => {
      for (let at = 1; at <= 6; at += 1) {
        const ledger = await born();
        await Promise.allSettled([retire(ledger.store({ at, when }), "end")]);
        const head = ledger.row("records", HEAD) as { state: string };
        const gate = ledger.row("auth", `gate.${UID}`) as { state: string };
        expect(head.state === "retired" && gate.state !== "retired").toBe(false);
      }
    },
  );
});

describe("what is refused", () => {
  test("an alias that was never active, and one that is retired", async () => {
    await expect(beginRetirement(memoryLedger().store(), alice, "end")).rejects.toMatchObject({ code: "not-found" });
    const ledger = await born();
    await retire(ledger.store(), "end");
    await expect(beginRetirement(ledger.store(), alice, "end2")).rejects.toMatchObject({
      code: "not-found",
      outcome: "not-executed",
    });
  });

  test("W131.14 a second retirement joins the first: its operation is the one that goes on", async () => {
    const ledger = await born();
    await beginRetirement(ledger.store(), alice, "end1");
    expect(await beginRetirement(ledger.store(), alice, "end2")).toEqual({
      uid: UID,
      opId: "end1",
      users: [USER],
      others: [],
    });
  });

  test("a gate that another operation holds is a conflict that names it", async () => {
    const ledger = await born();
    ledger.put("auth", `gate.${UID}`, { state: "frozen", generation: 1, op: { opId: "take7", kind: "takeover" } });
    await expect(beginRetirement(ledger.store(), alice, "end")).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("takeover take7") as string,
      outcome: "not-executed",
    });
  });

  test("W131.18 a late completion of A never touches its successor B", async () => {
    const ledger = await born();
    await retire(ledger.store(), "end");
    await born(OTHER_UID, "birth2", ledger);
    const before = ledger.writes.length;
    let cleaned = 0;
    const late = completeRetirement(ledger.store(), alice, UID, "end", STREAMS, async () => void (cleaned += 1));
    await expect(late).rejects.toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect([cleaned, ledger.writes.length]).toEqual([0, before]);
    expect(ledger.row("records", HEAD)).toMatchObject({ state: "active", lifecycleUid: OTHER_UID });
  });

  test.each<[string, (ledger: MemoryLedger) => Promise<unknown>]>([
    ["nothing was begun", async () => undefined],
    ["the operation is another", (ledger) => beginRetirement(ledger.store(), alice, "other")],
    [
      "the first half died after the freeze",
      (ledger) => Promise.allSettled([beginRetirement(ledger.store({ at: 1, when: "after" }), alice, "end")]),
    ],
  ])("a completion is refused and cleans nothing when %s", async (_what, prepare) => {
    const ledger = await born();
    await prepare(ledger);
    let cleaned = 0;
    const early = completeRetirement(ledger.store(), alice, UID, "end", STREAMS, async () => void (cleaned += 1));
    await expect(early).rejects.toMatchObject({ code: "failed-precondition" });
    expect(cleaned).toBe(0);
  });

  test("a retirement freeze never reopens: no credential leaves, and no activation revives it", async () => {
    const ledger = await born();
    await beginRetirement(ledger.store(), alice, "end");
    const entry = { principal: alice, uid: UID, credentialId: USER, expires: 500 };
    await expect(enterCredential(ledger.store(), entry)).rejects.toMatchObject({ code: "failed-precondition" });
    await expect(born(OTHER_UID, "birth2", ledger)).rejects.toMatchObject({ code: "already-exists" });
    await expect(born(UID, "birth", ledger)).rejects.toMatchObject({ code: "failed-precondition" });
    expect(ledger.row("auth", `gate.${UID}`)).toMatchObject({ state: "frozen", op: { opId: "end" } });
  });
});
