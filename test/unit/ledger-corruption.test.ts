/**
 * A marker or a malformed row where rows are never deleted (§13.1, supplement B): whatever reads it refuses, names the
 * key, and writes nothing. Which keys there are to read is found by running each operation and listening.
 */
import { describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { LedgerStore, ReadBucket } from "../../shared/ledger/store.ts";
import { readRow } from "../../shared/ledger/store.ts";
import { GateRow } from "../../shared/protocol/ledger/rows.ts";
import { AUTH_FAMILIES, isPrunable } from "../../shared/protocol/ledger/families.ts";
import { RECORD_KINDS } from "../../shared/protocol/ledger/record-kinds.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
type Key = { readonly bucket: ReadBucket; readonly key: string };

/** The same store, which tells what is read. */
function heard(store: LedgerStore, onRead: (key: Key) => void): LedgerStore {
  return {
    ...store,
    read: (bucket, key) => {
      onRead({ bucket, key });
      return store.read(bucket, key);
    },
  };
}

/** Alice, signed in; hers is the only lifecycle. */
async function enrolled(): Promise<{ ledger: MemoryLedger; uid: string; act: Parameters<Plane["check"]>[0] }> {
  const ledger = memoryLedger();
  const { uid, credentialId } = await createAuthority(memoryParts(ledger.store())).enrol(alice, SIGN_IN);
  return { ledger, uid, act: { ...alice, lifecycleUid: uid, credentialId } };
}
type Plane = ReturnType<typeof createAuthority>;

const OPERATIONS: Readonly<Record<string, (plane: Plane, uid: string) => Promise<unknown>>> = {
  "an exchange": (plane) => plane.enrol(alice, SIGN_IN),
  "a grant": (plane) => plane.grant({ ...alice, ...EVERYTHING, name: "A", kind: "interactive" }),
  "a narrowing": (plane) => plane.narrow(alice, { allowPublish: [] }),
  "a revocation": (plane) => plane.revoke(alice),
  "an end": (plane, uid) => plane.retire(alice, uid),
  "a takeover": (plane, uid) => plane.takeOver(alice, uid, 1),
};

describe("PB.02 W131.01 rows that are never deleted", () => {
  const damages: readonly [string, (ledger: MemoryLedger, key: Key) => void][] = [
    ["deleted", (ledger, { bucket, key }) => ledger.mark(bucket, key)],
    ["malformed", (ledger, { bucket, key }) => ledger.put(bucket, key, { v: 9 })],
  ];
  const cases = Object.entries(OPERATIONS).flatMap(([name, run]) =>
    damages.map(([how, damage]) => [name, how, run, damage] as const),
  );

  test.each(cases)(
    "PB.02 W131.01 %s refuses by its key each row that it reads and that is %s",
    async (_, __, run, damage) => {
      const whole = await enrolled();
      const read = new Map<string, Key>();
      const listening = heard(whole.ledger.store(), (one) => read.set(`${one.bucket} ${one.key}`, one));
      await run(createAuthority(memoryParts(listening)), whole.uid);
      const there = await enrolled();
      const own = ({ bucket, key }: Key): Key => ({ bucket, key: key.replaceAll(whole.uid, there.uid) });
      // What is there before, and is never gone; an end's frontier, and a stage, are made on the way.
      const kept = [...read.values()]
        .map(own)
        .filter(({ bucket, key }) => !isPrunable(bucket, key) && there.ledger.row(bucket, key) !== undefined);
      expect(kept.length).toBeGreaterThan(0);
      for (const one of kept) {
        const { ledger, uid } = await enrolled();
        const mine: Key = { bucket: one.bucket, key: one.key.replaceAll(there.uid, uid) };
        damage(ledger, mine);
        const refused = await failure(run(createAuthority(memoryParts(ledger.store())), uid));
        expect(refused).toMatchObject({
          code: "failed-precondition",
          message: expect.stringContaining(mine.key) as string,
        });
        // It was not taken for absence: nothing stands there anew.
        const raw = await ledger.store().read(mine.bucket, mine.key);
        expect(raw.kind === "marker" || (raw.kind === "value" && JSON.stringify(raw.value) === '{"v":9}')).toBe(true);
      }
    },
  );

  test.each(damages)("PB.02 W10.07 a connect is refused by the key of each kept row that is %s", async (_, damage) => {
    for (const lead of ["actor.", "gate.", "lifecycle."]) {
      const { ledger, act } = await enrolled();
      const bucket = lead === "lifecycle." ? "records" : "auth";
      const key = ledger.keys(bucket).find((one) => one.startsWith(lead)) ?? "";
      damage(ledger, { bucket, key });
      const checked = await createAuthority(memoryParts(ledger.store())).check(act);
      expect(checked).toMatchObject({ ok: false, reason: expect.stringContaining(key) as string });
    }
  });
});

describe("which families may be gone", () => {
  test("PB.02 written by hand, for every family there is", () => {
    const auth = Object.keys(AUTH_FAMILIES).filter((family) => isPrunable("auth", `${family}.x`));
    expect(auth.toSorted()).toEqual(["natkey"]);
    const records = Object.keys(RECORD_KINDS).filter((kind) => isPrunable("records", `${kind}.x`));
    expect(records.toSorted()).toEqual(["contracts", "svc"]);
    expect(isPrunable("auth", "unheard-of.x")).toBe(false);
    expect(isPrunable("records", "unheard-of.x")).toBe(false);
    expect(isPrunable("sessions", "session.x")).toBe(false);
    expect(isPrunable("issued", "attempt.v1.x")).toBe(false);
    expect(isPrunable("accepted", "accepted.v1.x")).toBe(false);
  });

  test("PB.02 a marker where rows are pruned means that the row is gone", async () => {
    const ledger = memoryLedger();
    ledger.mark("auth", "natkey.a");
    ledger.mark("auth", "gate.a");
    expect(await readRow(ledger.store(), "auth", "natkey.a", GateRow)).toBeUndefined();
    expect(await failure(readRow(ledger.store(), "auth", "gate.a", GateRow))).toMatchObject({
      message: expect.stringContaining("gate.a") as string,
    });
  });
});
