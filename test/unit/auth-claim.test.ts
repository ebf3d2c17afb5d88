/** The plane's claim and the small parts around it, without a broker. */
import { describe, expect, test } from "vitest";
import { type ClaimParts, type ClaimState, type Holding, keepClaim } from "../../services/auth/plane/claim.ts";
import { GONE, LIVE, type Liveness } from "../../services/auth/plane/liveness.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { createSparing } from "../../shared/daemon/sparing.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { ROOT_CREDENTIAL_ID } from "../../shared/protocol/base/grammar.ts";
import type { PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { eventually } from "../support/cli.ts";
import { SAID } from "../support/plane-parts.ts";

const never = new Promise<unknown>(() => undefined);

const tuple = (cid: number) => ({ serverId: `N${"A".repeat(55)}`, cid, userNkey: `U${"A".repeat(55)}` });
const HOUR = 3_600_000;
const CLAIM = "c".repeat(26);
const PEER = "p".repeat(26);

const row = (over: Partial<PlaneRow> = {}): PlaneRow => ({
  v: 1,
  generation: 3,
  claimId: PEER,
  state: "held",
  ledger: tuple(1),
  records: tuple(2),
  openedAt: 5,
  ...over,
});

type Rig = {
  readonly said: ClaimState[];
  readonly done: string[];
  readonly stop: () => Promise<void>;
  held: () => boolean;
};

function claimOn(ledger: MemoryLedger, over: Partial<ClaimParts> = {}): Rig {
  const said: ClaimState[] = [];
  const done: string[] = [];
  const claim = keepClaim({
    claimId: CLAIM,
    ledger: ledger.store(),
    livenessOf: () => Promise.resolve(GONE),
    hold: () => Promise.resolve(holding(done)),
    onState: (state) => said.push(state),
    whileHeld: () => {
      done.push("duty");
      return Promise.resolve({ ended: never, stop: () => Promise.resolve(void done.push("duty ends")) });
    },
    now: () => 7,
    retryMs: 5,
    ...over,
  });
  return { said, done, stop: claim.stop, held: claim.held };
}

const holding = (done: string[], ended: Promise<unknown> = new Promise(() => undefined)): Holding => ({
  ledger: tuple(9),
  records: tuple(10),
  begin: ({ value }) => void done.push(`begun ${value.state}`),
  freshMs: HOUR,
  ended,
  close: () => Promise.resolve(void done.push("closed")),
});

const saying = (rig: Rig, kind: ClaimState["kind"]) =>
  eventually(
    () => rig.said.some((state) => state.kind === kind),
    (found) => found,
    5000,
  );

test("PI.02 a duty that can't be done any more ends the claim, in order, and it is claimed anew", async () => {
  const ledger = memoryLedger();
  let duties = 0;
  const rig = claimOn(ledger, {
    whileHeld: () => {
      duties += 1;
      return Promise.resolve({
        ended: duties === 1 ? Promise.resolve("its connection is refused") : never,
        stop: () => Promise.resolve(),
      });
    },
  });
  await eventually(
    () => rig.said.filter(({ kind }) => kind === "held").length,
    (held) => held === 2,
    5000,
  );
  await rig.stop();
  expect(rig.said.map(({ kind }) => kind)).toEqual(["held", "lost", "held"]);
  expect(rig.done.filter((what) => what === "closed").length).toBe(2);
});

describe("taking it", () => {
  test.each<[string, PlaneRow | undefined, number]>([
    ["from nobody", undefined, 1],
    ["from a row that was released", row({ state: "released" }), 4],
    ["from a holder whose two connections are gone", row(), 4],
  ])("%s", async (_, before, generation) => {
    const ledger = memoryLedger();
    if (before !== undefined) ledger.put("auth", "plane", before);
    const rig = claimOn(ledger);
    await saying(rig, "held");
    expect(rig.held()).toBe(true);
    expect(ledger.row("auth", "plane")).toEqual(
      row({ generation, claimId: CLAIM, ledger: tuple(9), records: tuple(10), openedAt: 7 }),
    );
    await rig.stop();
    // Inert until the row names them; at the end the duty first, then the scanners, then the row.
    expect(rig.done).toEqual(["begun held", "duty", "duty ends", "closed"]);
    expect(rig.held()).toBe(false);
    expect(ledger.row("auth", "plane")).toMatchObject({ state: "released", claimId: CLAIM });
  });

  test.each<[ClaimState["kind"], Record<number, Liveness["kind"]>]>([
    ["live-peer", { 1: "live", 2: "live" }],
    ["live-peer", { 1: "gone", 2: "live" }],
    ["live-peer", { 1: "live", 2: "unknown" }],
    ["inconclusive", { 1: "gone", 2: "unknown" }],
    ["inconclusive", { 1: "unknown", 2: "unknown" }],
  ])("refused as %s for %j, told once, and nothing is opened or written", async (kind, found) => {
    const ledger = memoryLedger();
    ledger.put("auth", "plane", row());
    let looks = 0;
    const rig = claimOn(ledger, {
      livenessOf: ({ cid }) => {
        looks += 1;
        return Promise.resolve(SAID[found[cid] ?? "unknown"]);
      },
      hold: () => Promise.reject(new Error("it must not come to this")),
    });
    await eventually(
      () => looks,
      (count) => count >= 6,
      5000,
    );
    await rig.stop();
    const why = kind === "inconclusive" ? { why: SAID.unknown.why } : {};
    expect(rig.said).toEqual([{ kind, claimId: PEER, ...why }]);
    expect(ledger.writes).toEqual([]);
  });

  test("who is outrun gives its connection back and waits", async () => {
    const ledger = memoryLedger();
    const done: string[] = [];
    const rig = claimOn(ledger, {
      hold: () => {
        ledger.put("auth", "plane", row());
        return Promise.resolve(holding(done));
      },
      livenessOf: () => Promise.resolve(LIVE),
    });
    await saying(rig, "live-peer");
    await rig.stop();
    expect(rig.said.map(({ kind }) => kind)).toEqual(["outrun", "live-peer"]);
    expect(done).toEqual(["closed"]);
    expect(ledger.row("auth", "plane")).toEqual(row());
  });

  test("a row that is corrupt, or was deleted, is nobody's to take", async () => {
    for (const harm of [
      (ledger: MemoryLedger) => ledger.put("auth", "plane", { ...row(), more: 1 }),
      (ledger: MemoryLedger) => ledger.mark("auth", "plane"),
    ]) {
      const ledger = memoryLedger();
      harm(ledger);
      const rig = claimOn(ledger);
      await saying(rig, "failed");
      await rig.stop();
      expect(rig.held()).toBe(false);
      expect(ledger.writes).toEqual([]);
    }
  });
});

describe("losing it", () => {
  test("the moment its connection ends, before the duty has ended", async () => {
    const ledger = memoryLedger();
    let fall = (): void => undefined;
    const first = new Promise<void>((resolve) => {
      fall = resolve;
    });
    const heldAtEnd: boolean[] = [];
    let opened = 0;
    const rig = claimOn(ledger, {
      hold: () => Promise.resolve(holding([], (opened += 1) === 1 ? first : new Promise(() => undefined))),
      whileHeld: () =>
        Promise.resolve({
          ended: never,
          stop: () => {
            heldAtEnd.push(rig.held());
            return Promise.resolve();
          },
        }),
    });
    await saying(rig, "held");
    fall();
    await eventually(
      () => rig.said.filter(({ kind }) => kind === "held").length,
      (count) => count === 2,
      5000,
    );
    expect(heldAtEnd).toEqual([false]);
    expect(rig.said.map(({ kind }) => kind)).toEqual(["held", "lost", "held"]);
    await rig.stop();
  });

  test("W131.09 what is over and could not be written as such is written later: on a server that crashed nobody could prove it", async () => {
    const ledger = memoryLedger();
    const store = ledger.store();
    let refusals = 3;
    const cas: typeof store.cas = (bucket, key, value, revision) => {
      const isRelease = (value as PlaneRow).state === "released";
      if (isRelease && (refusals -= 1) >= 0)
        return Promise.reject(new CotalError(ErrorCode.DeadlineExceeded, "no answer"));
      return store.cas(bucket, key, value, revision);
    };
    let held = 0;
    const rig = claimOn(ledger, {
      ledger: { ...store, cas },
      livenessOf: () => Promise.resolve(SAID.unknown),
      hold: () => Promise.resolve(holding([], (held += 1) === 1 ? Promise.resolve("its server crashed") : undefined)),
    });
    await eventually(
      () => rig.said.filter(({ kind }) => kind === "held").length,
      (times) => times === 2,
      5000,
    );
    expect(ledger.row("auth", "plane")).toMatchObject({ state: "held", claimId: CLAIM, generation: 2 });
    expect(refusals).toBeLessThan(0);
    await rig.stop();
  });

  test("PI.02 a scanner that can't be closed keeps the claim: whoever waits finds it alive", async () => {
    const ledger = memoryLedger();
    const rig = claimOn(ledger, {
      hold: () => Promise.resolve({ ...holding([]), close: () => Promise.reject(new Error("it does not close")) }),
    });
    await saying(rig, "held");
    await rig.stop();
    expect(rig.held()).toBe(false);
    expect(ledger.row("auth", "plane")).toMatchObject({ state: "held", claimId: CLAIM });
  });

  test("PI.02 scanners whose credentials grow old are let go in order, and others hold it at once", async () => {
    const ledger = memoryLedger();
    const done: string[] = [];
    let opened = 0;
    const rig = claimOn(ledger, {
      hold: () => Promise.resolve({ ...holding(done), freshMs: (opened += 1) === 1 ? 5 : HOUR }),
      retryMs: HOUR,
    });
    await eventually(
      () => rig.said.filter(({ kind }) => kind === "held").length,
      (count) => count === 2,
      5000,
    );
    expect(rig.said.map(({ kind }) => kind)).toEqual(["held", "let-go", "held"]);
    expect(done).toEqual(["begun held", "closed", "begun held"]);
    await rig.stop();
  });

  test("a duty that can't begin gives the claim back, again and again, and is told once", async () => {
    const ledger = memoryLedger();
    let tries = 0;
    const rig = claimOn(ledger, {
      whileHeld: () => Promise.reject(new Error((tries += 1) > 3 ? "yet another" : "no")),
    });
    await eventually(
      () => tries,
      (count) => count > 5,
      5000,
    );
    await rig.stop();
    const said = rig.said.map((state) => (state.kind === "failed" ? String(state.cause) : state.kind));
    expect(said).toEqual(["Error: no", "Error: yet another"]);
    expect(rig.held()).toBe(false);
    expect(ledger.row("auth", "plane")).toMatchObject({ state: "released" });
    expect(rig.done).toContain("closed");
  });
});

describe("turns", () => {
  test("one name's work is done one after another, in order; names do not wait for each other", async () => {
    const inTurn = createTurns();
    const seen: string[] = [];
    const slow = (what: string) => async () => {
      seen.push(`${what} begins`);
      await new Promise((resolve) => setTimeout(resolve, 5));
      seen.push(`${what} ends`);
      return what;
    };
    const all = [inTurn("a", slow("a1")), inTurn("a", slow("a2")), inTurn("b", slow("b1"))];
    expect(await Promise.all(all)).toEqual(["a1", "a2", "b1"]);
    expect(seen.filter((what) => what.startsWith("a"))).toEqual(["a1 begins", "a1 ends", "a2 begins", "a2 ends"]);
    expect(seen.indexOf("b1 begins")).toBeLessThan(seen.indexOf("a1 ends"));
  });

  test("what failed for one is nothing to the next", async () => {
    const inTurn = createTurns();
    const failed = inTurn("a", () => Promise.reject(new Error("no")));
    const next = inTurn("a", () => Promise.resolve("yes"));
    await expect(failed).rejects.toThrow("no");
    expect(await next).toBe("yes");
  });
});

test("a flood of lines writes so many a minute, and then how many were left out", () => {
  let now = 0;
  const written: (number | undefined)[] = [];
  const sparing = createSparing(2, () => now);
  const line = () => sparing(({ leftOut }) => written.push(leftOut));
  for (let at = 0; at < 10; at += 1) line();
  now = 59_999;
  line();
  now = 60_000;
  for (let at = 0; at < 3; at += 1) line();
  expect(written).toEqual([undefined, undefined, 9, undefined]);
});

test("W10.06 a root's id is the same for the same incarnation, and no other's", () => {
  const uid = "u".repeat(26);
  expect(rootCredentialId(uid, 1)).toMatch(ROOT_CREDENTIAL_ID);
  expect(rootCredentialId(uid, 1)).toBe(rootCredentialId(uid, 1));
  expect(new Set([rootCredentialId(uid, 1), rootCredentialId(uid, 2), rootCredentialId("v".repeat(26), 1)]).size).toBe(
    3,
  );
});
