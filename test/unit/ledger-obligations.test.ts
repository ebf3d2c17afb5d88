/** Obligations (§13.8, supplement D): their rows, an admission against an end, and the drain, whatever dies where. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { activate } from "../../shared/ledger/activation.ts";
import { admit, decideSelf, drainObligations, settleSelf } from "../../shared/ledger/obligations.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { ObligationRow, obligationKey, obligationMayMove } from "../../shared/protocol/ledger/obligation-rows.ts";
import { parseRecordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { type MemoryLedger, crashLoop, memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";
import { stepped } from "../support/stepped-ledger.ts";

const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
const UID = "q".repeat(26);
const caller = { owner: "u_bbbbbbbbbbbbbbbbbbbbbbbbbb", actor: "bob", uid: "r".repeat(26) };
const name = (id: string) => ({ target: UID, endpoint: "com.acme.deploy", ...caller, id });
/** In memory every row is met. */
const ANY_HEAD = { key: "lifecycle.x", revision: 0 };
const KEY = (id: string): string => `oblig.${UID}.com_acme_deploy.${caller.owner}.bob.${caller.uid}.${id}`;

const commit = (id: string) => {
  const commitValue = { by: id };
  return {
    decision: "self",
    opId: id,
    commitKey: `goal.${id}`,
    commitBaseRevision: 0,
    commitValue,
    commitDigest: canonicalDigest(commitValue),
  } as const;
};

async function born(): Promise<MemoryLedger> {
  const ledger = memoryLedger();
  await activate(
    ledger.store(),
    {
      opId: "birth",
      principal: alice,
      requestDigest: "d",
      managerInstance: "m",
      uid: UID,
      now: 1,
      random: (n) => new Uint8Array(n),
    },
    () => Promise.resolve(),
  );
  return ledger;
}

async function end(store: LedgerStore): Promise<void> {
  const { opId } = await beginRetirement(store, alice, `retire-${UID}`, UID);
  await completeRetirement(store, alice, UID, opId, { DM_main: 1 }, () => Promise.resolve(), settleSelf(store));
}

const stateOf = (ledger: MemoryLedger, id: string) => ObligationRow.parse(ledger.row("records", KEY(id))).state;

async function ended(run: Promise<unknown>): Promise<string> {
  try {
    await run;
    return "ok";
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    return thrown.code;
  }
}

describe("PB.08 the rows", () => {
  test("PB.08 the key names target, endpoint, caller and id; `ep` stands for no target", () => {
    expect(obligationKey.of(name("x1"))).toBe(KEY("x1"));
    expect(obligationKey.of({ ...name("x1"), target: "ep" })).toMatch(/^oblig\.ep\.com_acme_deploy\./);
    expect(parseRecordKey(KEY("x1"))).toMatchObject({
      kind: "oblig",
      writer: "ledger",
      values: { target: UID, id: "x1" },
    });
    expect(parseRecordKey("oblig.nobody.x")).toBeUndefined();
  });

  test("PB.08 both kinds are closed, and neither takes the other's fields", () => {
    const self = { v: 1, state: "provisional", mappingRevision: 3, ...commit("a") };
    const epf = {
      v: 1,
      state: "accepted",
      decision: "epf",
      opId: "a",
      fingerprint: `sha256:${"0".repeat(64)}`,
      sourceSeq: 1,
      route: "epw.x.p",
    };
    for (const row of [self, epf]) {
      expect(ObligationRow.safeParse(row).success).toBe(true);
      expect(ObligationRow.safeParse({ ...row, extra: 1 }).success).toBe(false);
    }
    expect(ObligationRow.safeParse({ ...self, route: "x" }).success).toBe(false);
    expect(ObligationRow.safeParse({ ...epf, commitKey: "x" }).success).toBe(false);
  });

  test("PD.02 every edge, written out", () => {
    const states = ["provisional", "accepted", "rejected", "terminal"] as const;
    const edges = (["absent", ...states] as const).flatMap((from) =>
      states.flatMap((to) => (obligationMayMove(from, to) ? [`${from} -> ${to}`] : [])),
    );
    expect(edges).toEqual([
      "absent -> provisional",
      "provisional -> accepted",
      "provisional -> rejected",
      "accepted -> terminal",
    ]);
  });
});

describe("PD.02 an admission", () => {
  test("PD.02 names the head that it saw; the same again joins it, another under the same id is a conflict", async () => {
    const ledger = await born();
    const row = await admit(ledger.store(), name("a"), alice, commit("a"));
    expect(row.value).toMatchObject({ state: "provisional", decision: "self" });
    expect(await admit(ledger.store(), name("a"), alice, commit("a"))).toMatchObject({ revision: row.revision });
    expect(await failure(admit(ledger.store(), name("a"), alice, commit("b")))).toMatchObject({ code: "conflict" });
  });

  test("PD.02 W131.04 W134.12 is refused for a target that is retiring, or has another lifecycle by now, and writes nothing", async () => {
    const ledger = await born();
    await beginRetirement(ledger.store(), alice, "end", UID);
    const before = ledger.writes.length;
    expect(await failure(admit(ledger.store(), name("a"), alice, commit("a")))).toMatchObject({ code: "expired" });
    const other = { ...name("a"), target: "s".repeat(26) };
    expect(await failure(admit(ledger.store(), other, alice, commit("a")))).toMatchObject({ code: "expired" });
    expect(ledger.writes.length).toBe(before);
  });

  test("PD.02 W134.12 an end that is through before the row stands: the second look refuses it, and nothing is accepted", async () => {
    const ledger = await born();
    const store = ledger.store();
    const late: LedgerStore = {
      ...store,
      create: async (...row) => {
        await end(ledger.store());
        return store.create(...row);
      },
    };
    expect(await failure(admit(late, name("a"), alice, commit("a")))).toMatchObject({ code: "expired" });
    expect(stateOf(ledger, "a")).toBe("rejected");
    expect(await failure(decideSelf(ledger.store(), name("a"), alice))).toMatchObject({ code: "expired" });
    expect(ledger.row("records", "goal.a")).toBeUndefined();
  });

  test("PD.02 PD.03 W134.12 against an end, in every order: nothing is admitted that the end leaves undecided", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const process = (): LedgerStore => stepped(ledger.store(), scheduler);
        const admissions = ["a", "b", "c"].map(async (id) => {
          const store = process();
          const outcome = await ended(
            admit(store, name(id), alice, commit(id)).then(() => decideSelf(store, name(id), alice)),
          );
          return { id, outcome };
        });
        const over = ended(end(process()));
        await scheduler.waitFor(Promise.all([...admissions, over]));
        expect(await over).toBe("ok");
        for (const { id, outcome } of await Promise.all(admissions)) {
          const row = ledger.row("records", KEY(id));
          const state = row === undefined ? "none" : ObligationRow.parse(row).state;
          expect(["none", "terminal", "rejected"]).toContain(state);
          // What is accepted is written, what is written was accepted, and whoever was told so is right.
          expect([id, ledger.row("records", `goal.${id}`) !== undefined]).toEqual([id, state === "terminal"]);
          expect(outcome === "ok" && state !== "terminal").toBe(false);
        }
      }),
      { numRuns: 300 },
    );
  }, 60_000);
});

describe("PD.03 the drain", () => {
  /** Accepted, and its process died before it wrote what it binds. */
  async function accepted(ledger: MemoryLedger, id: string): Promise<void> {
    const { value } = await admit(ledger.store(), name(id), alice, commit(id));
    ledger.put("records", KEY(id), { ...value, state: "accepted" });
  }

  test("PD.02 PD.03 finishes what died: at its base it is written, landed and overtaken it is left, undecided it is rejected", async () => {
    const ledger = await born();
    for (const id of ["landed", "base", "moved"]) await accepted(ledger, id);
    await admit(ledger.store(), name("undecided"), alice, commit("undecided"));
    ledger.put("records", "goal.landed", commit("landed").commitValue);
    ledger.put("records", "goal.moved", { by: "somebody else" });
    await drainObligations(ledger.store(), UID, ANY_HEAD, settleSelf(ledger.store()));
    const states = ["landed", "base", "moved", "undecided"].map((id) => stateOf(ledger, id));
    expect(states).toEqual(["terminal", "terminal", "terminal", "rejected"]);
    const written = ["landed", "base", "moved", "undecided"].map((id) => ledger.row("records", `goal.${id}`));
    expect(written).toEqual([{ by: "landed" }, { by: "base" }, { by: "somebody else" }, undefined]);
  });

  test.each(["before", "after"] as const)(
    "PD.02 PD.03 a decision dies %s each of its writes: the drain finishes it",
    async (when) => {
      for (let at = 1; at <= 3; at += 1) {
        const ledger = await born();
        await admit(ledger.store(), name("a"), alice, commit("a"));
        await expect(decideSelf(ledger.store({ at, when }), name("a"), alice)).rejects.toThrow(/write/);
        await crashLoop(ledger, when, (store) => drainObligations(store, UID, ANY_HEAD, settleSelf(store)));
        const state = stateOf(ledger, "a");
        expect(state).toBe(when === "before" && at === 1 ? "rejected" : "terminal");
        expect(ledger.row("records", "goal.a") !== undefined).toBe(state === "terminal");
      }
    },
  );

  test("PD.03 a row that comes late is settled too: it ends with an enumeration that finds none", async () => {
    const ledger = await born();
    await admit(ledger.store(), name("a"), alice, commit("a"));
    const settle = settleSelf(ledger.store());
    let late = false;
    await drainObligations(ledger.store(), UID, ANY_HEAD, async (key, row) => {
      if (!late) await admit(ledger.store(), name("late"), alice, commit("late"));
      late = true;
      await settle(key, row);
    });
    expect(stateOf(ledger, "late")).toBe("rejected");
  });

  test("PD.03 W131.11 an end stops at one that nobody here can decide, names it, and the name is not free", async () => {
    const ledger = await born();
    await admit(ledger.store(), name("a"), alice, commit("a"));
    const { opId } = await beginRetirement(ledger.store(), alice, "end", UID);
    const finish = () => completeRetirement(ledger.store(), alice, UID, opId, {}, () => Promise.resolve());
    expect(await failure(finish())).toMatchObject({
      code: "failed-precondition",
      message: expect.stringContaining(KEY("a")) as string,
    });
    expect(ledger.row("records", `frontier.${UID}`)).toBeUndefined();
    expect(ledger.row("records", `lifecycle.${alice.owner}.alice`)).toMatchObject({ state: "retiring" });
  });
});
