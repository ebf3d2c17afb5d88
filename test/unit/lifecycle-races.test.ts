/**
 * Operations on one lifecycle at once, in orders that fast-check chooses (§13.1): one of them wins, the others are
 * told, and at no write does anything stand that an operation had promised was over.
 */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { activate } from "../../shared/ledger/activation.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { takeOver } from "../../shared/ledger/takeover.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { CredentialRow, GateRow, HeadRow } from "../../shared/protocol/ledger/rows.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { stepped, watched } from "../support/stepped-ledger.ts";

const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
const HEAD = `lifecycle.${alice.owner}.alice`;
const UID = "q".repeat(26);
const nothing = (): Promise<void> => Promise.resolve();

type Outcome = { readonly ok: true } | { readonly ok: false; readonly code: ErrorCode };

/** How an operation ended; a fault that is none of ours ends the test. */
async function ended(run: Promise<unknown>): Promise<Outcome> {
  try {
    await run;
    return { ok: true };
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    return { ok: false, code: thrown.code };
  }
}

function birth(store: LedgerStore, opId: string, uid?: string) {
  let call = 0;
  const random = (count: number): Uint8Array =>
    createHash("sha512")
      .update(`${opId}/${(call += 1)}`)
      .digest()
      .subarray(0, count);
  const given = uid === undefined ? {} : { uid };
  return activate(
    store,
    { opId, principal: alice, requestDigest: opId, managerInstance: "m", now: 1, random, ...given },
    nothing,
  );
}

const enter = (store: LedgerStore, epoch: number): Promise<void> =>
  enterCredential(store, { principal: alice, uid: UID, credentialId: rootCredentialId(UID, epoch), expires: 100 });

async function end(store: LedgerStore, opId = `retire-${UID}`): Promise<void> {
  const begun = await beginRetirement(store, alice, opId, UID);
  await completeRetirement(store, alice, UID, begun.opId, { DM_main: 1 }, nothing);
}

const gateOf = (ledger: MemoryLedger, uid = UID): GateRow => GateRow.parse(ledger.row("auth", `gate.${uid}`));
const headOf = (ledger: MemoryLedger): HeadRow => HeadRow.parse(ledger.row("records", HEAD));
const rowsOf = (ledger: MemoryLedger): CredentialRow[] =>
  ledger
    .keys("auth")
    .filter((key) => key.startsWith(`cred.${UID}.`))
    .map((key) => CredentialRow.parse(ledger.row("auth", key)));
const active = (ledger: MemoryLedger): string[] =>
  rowsOf(ledger)
    .filter(({ state }) => state === "active")
    .map(({ credentialId }) => credentialId);

async function born(): Promise<MemoryLedger> {
  const ledger = memoryLedger();
  await birth(ledger.store(), "birth", UID);
  await enter(ledger.store(), 1);
  return ledger;
}

describe("activations", () => {
  test("W131.05 of fifty that race for one alias one wins; every loser is refused, its gate retired, its UID burned", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = memoryLedger();
        const racers = Array.from({ length: 50 }, (_, at) => `op${at}`);
        const all = racers.map((opId) => ended(birth(stepped(ledger.store(), scheduler), opId)));
        await scheduler.waitFor(Promise.all(all));
        const outcomes = await Promise.all(all);
        expect(outcomes.filter(({ ok }) => ok)).toHaveLength(1);
        expect(outcomes.filter((one) => !one.ok && one.code !== ErrorCode.AlreadyExists)).toEqual([]);
        const uids = ledger.keys("records").flatMap((key) => (key.startsWith("uid.") ? [key.slice(4)] : []));
        expect(uids).toHaveLength(50);
        const open = uids.filter((uid) => gateOf(ledger, uid).state === "open");
        expect(open).toEqual([headOf(ledger).lifecycleUid]);
        expect(uids.filter((uid) => gateOf(ledger, uid).state === "retired")).toHaveLength(49);
      }),
      { numRuns: 5 },
    );
  }, 60_000);
});

describe("takeovers", () => {
  test("W131.07 W131.08 of many for one epoch one wins; the others are refused and none of them leaves the gate shut", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const barriers: string[] = [];
        const racers = ["a", "b", "c", "d"].map((opId) => {
          const store = stepped(ledger.store(), scheduler);
          return ended(
            takeOver(store, { principal: alice, uid: UID, opId, fromEpoch: 1 }, async () => {
              // Whoever comes as far as the barrier has nothing left to evict that could come back.
              expect(active(ledger)).toEqual([]);
              expect(headOf(ledger).processEpoch).toBe(1);
              barriers.push(opId);
            }),
          );
        });
        await scheduler.waitFor(Promise.all(racers));
        const outcomes = await Promise.all(racers);
        expect(outcomes.filter(({ ok }) => ok)).toHaveLength(1);
        const codes = outcomes.flatMap((one) => (one.ok ? [] : [one.code]));
        expect(codes.filter((code) => code !== ErrorCode.Conflict && code !== ErrorCode.FailedPrecondition)).toEqual(
          [],
        );
        expect(barriers).toHaveLength(1);
        expect(headOf(ledger)).toMatchObject({ processEpoch: 2, lastTakeoverOpId: barriers[0] });
        expect(gateOf(ledger)).toMatchObject({ state: "open" });
      }),
      { numRuns: 150 },
    );
  }, 60_000);

  test("W131.07 W131L.07 against entries of the epoch that ends: none is left active, and none is the next root", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const store = (): LedgerStore => watched(stepped(ledger.store(), scheduler), () => expectNoStale(ledger));
        const takeover = { principal: alice, uid: UID, opId: "take", fromEpoch: 1 };
        await scheduler.waitFor(
          Promise.all([
            ended(takeOver(store(), takeover, nothing)),
            ended(enter(store(), 1)),
            ended(
              enterCredential(store(), { principal: alice, uid: UID, credentialId: `U${"A".repeat(55)}`, expires: 9 }),
            ),
          ]),
        );
        expect(headOf(ledger).processEpoch).toBe(2);
        expectNoStale(ledger);
        await enter(ledger.store(), 2);
        expect(headOf(ledger).currentCredentialId).toBe(rootCredentialId(UID, 2));
      }),
      { numRuns: 300 },
    );
  }, 60_000);

  /** Of the epoch that has ended nothing is the root, whatever is written when. */
  function expectNoStale(ledger: MemoryLedger): void {
    const { processEpoch, currentCredentialId } = headOf(ledger);
    const isOver = processEpoch > 1;
    expect(isOver && currentCredentialId === rootCredentialId(UID, 1)).toBe(false);
    expect(isOver ? active(ledger).filter((id) => id === rootCredentialId(UID, 1)) : []).toEqual([]);
  }
});

describe("an end", () => {
  test("W131.11 W131L.07 against entries and a takeover: whatever the order, it is over for good and nothing is active", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const store = (): LedgerStore => watched(stepped(ledger.store(), scheduler), () => expectWhole(ledger));
        const takeover = { principal: alice, uid: UID, opId: "take", fromEpoch: 1 };
        const first = ended(end(store()));
        await scheduler.waitFor(
          Promise.all([
            first,
            ended(enter(store(), 1)),
            ended(takeOver(store(), takeover, nothing)),
            ended(enter(store(), 2)),
          ]),
        );
        // It is refused while a takeover holds the gate, and is asked again then.
        const outcome = await first;
        expect(outcome.ok || outcome.code === ErrorCode.Conflict).toBe(true);
        const again = await ended(end(ledger.store()));
        expect(again.ok || again.code === ErrorCode.NotFound).toBe(true);
        expectWhole(ledger);
        expect(headOf(ledger).state).toBe("retired");
        expect(active(ledger)).toEqual([]);
        expect(await ended(enter(ledger.store(), headOf(ledger).processEpoch))).toMatchObject({ ok: false });
      }),
      { numRuns: 300 },
    );
  }, 60_000);

  test("W131.11 W131.14 two of one lifecycle, beside a successor's activation: the name is free once, and last", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = await born();
        const store = (): LedgerStore => watched(stepped(ledger.store(), scheduler), () => expectFreed(ledger));
        const ends = [ended(end(store())), ended(end(store()))];
        const next = ended(birth(store(), "next"));
        await scheduler.waitFor(Promise.all([...ends, next]));
        const outcomes = await Promise.all(ends);
        // The second finds a step done, or everything.
        const codes = outcomes.flatMap((one) => (one.ok ? [] : [one.code]));
        expect(
          codes.filter(
            (code) => ![ErrorCode.NotFound, ErrorCode.Conflict, ErrorCode.FailedPrecondition].includes(code as never),
          ),
        ).toEqual([]);
        expect(outcomes.some(({ ok }) => ok)).toBe(true);
        expect(gateOf(ledger)).toMatchObject({ state: "retired", op: { opId: `retire-${UID}` } });
        expectFreed(ledger);
        expect(active(ledger)).toEqual([]);
      }),
      { numRuns: 300 },
    );
  }, 60_000);

  /** The alias is the next one's only when everything of this one is through. */
  function expectFreed(ledger: MemoryLedger): void {
    const head = headOf(ledger);
    const isFree = head.lifecycleUid !== UID || head.state === "retired";
    const isOver = gateOf(ledger).state === "retired" && ledger.row("records", `frontier.${UID}`) !== undefined;
    // An entry that has lost may still be about to take its row back: it releases nothing.
    expect(isFree && !isOver).toBe(false);
  }

  function expectWhole(ledger: MemoryLedger): void {
    expectFreed(ledger);
    const gate = gateOf(ledger);
    const head = headOf(ledger);
    // Retiring is this end's, under a gate that it holds.
    const isHeld = gate.state !== "open" && gate.op.kind === "retirement";
    expect(head.state !== "active" && !isHeld).toBe(false);
  }
});
