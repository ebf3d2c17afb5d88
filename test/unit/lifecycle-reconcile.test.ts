/** The guarded reconciler, without a broker: what it asks before it opens a gate, and what it leaves (§13.1). */
import { describe, expect, test } from "vitest";
import { GONE, type Liveness } from "../../services/auth/plane/liveness.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EXECUTOR, OWNER, SAID, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const p = { owner: OWNER, actor: "alice" };
const blind = () =>
  Promise.resolve({ kind: "unknown", code: "unavailable", why: "nobody answered", next: "ask later" } as const);

type Left = { readonly ledger: MemoryLedger; readonly uid: string; readonly stage: string };

/** A takeover that could not prove that nobody is connected, and whose process is not heard of any more. */
async function left(): Promise<Left> {
  const ledger = memoryLedger();
  const authority = createAuthority(memoryParts(ledger.store(), { connectionsOf: blind }));
  const { uid } = await authority.enrol(p, SIGN_IN);
  expect(await failure(authority.takeOver(p, uid, 1))).toMatchObject({ code: "unavailable" });
  const stage = `stage.takeover-${uid}-1.takeover`;
  expect(ledger.row("auth", stage)).toMatchObject({ fromEpoch: 1, executor: EXECUTOR });
  return { ledger, uid, stage };
}

const another = (ledger: MemoryLedger, over: Partial<PlaneParts>) => createAuthority(memoryParts(ledger.store(), over));
const answering =
  (first: Liveness["kind"], second: Liveness["kind"]): PlaneParts["livenessOf"] =>
  ({ cid }) =>
    Promise.resolve(SAID[cid === EXECUTOR.ledger.cid ? first : second]);

describe("W131L.06 an end that finds a takeover's gate", () => {
  test.each<[Liveness["kind"], Liveness["kind"], string]>([
    ["live", "live", "and who carries it out is alive"],
    ["gone", "live", "and who carries it out is alive"],
    ["live", "unknown", "and who carries it out is alive"],
    ["gone", "unknown", "can't be told: a server is silent"],
    ["unknown", "unknown", "can't be told"],
  ])("W131L.06 refuses while its connections are %s and %s, and opens nothing", async (first, second, words) => {
    const { ledger, uid } = await left();
    const before = ledger.row("auth", `gate.${uid}`);
    const refused = await failure(another(ledger, { livenessOf: answering(first, second) }).retire(p, uid));
    expect([refused.code, refused.next]).toEqual([
      "conflict",
      `let that operation finish: cotal actor rotate ${OWNER}.alice`,
    ]);
    expect(String(refused)).toContain(words);
    expect(ledger.row("auth", `gate.${uid}`)).toEqual(before);
  });

  test("W131L.06 both gone: opened by the dead operation's id, at its epoch, one generation on; then the end takes it", async () => {
    const { ledger, uid } = await left();
    const writes = ledger.writes.length;
    await another(ledger, { livenessOf: answering("gone", "gone") }).retire(p, uid);
    const gate = ledger.writes.slice(writes).filter((key) => key === `auth/gate.${uid}`);
    // Opened, frozen by the end, retired.
    expect(gate).toHaveLength(3);
    expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "retired", generation: 2 });
    expect(ledger.row("records", `lifecycle.${OWNER}.alice`)).toMatchObject({ state: "retired", processEpoch: 1 });
  });

  test("W131L.06 of whom nothing was written down, nothing is proved", async () => {
    const { ledger, uid, stage } = await left();
    ledger.put("auth", stage, { ...(ledger.row("auth", stage) as object), lifecycleUid: "z".repeat(26) });
    const refused = await failure(another(ledger, { livenessOf: answering("gone", "gone") }).retire(p, uid));
    expect(String(refused)).toContain("never written down");
    expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "frozen" });
  });

  test("W131L.06 whoever goes on with it while its death is being proved is somebody else", async () => {
    const { ledger, uid, stage } = await left();
    const livenessOf = (): Promise<Liveness> => {
      const row = ledger.row("auth", stage) as { readonly executor: typeof EXECUTOR };
      ledger.put("auth", stage, { ...row, executor: { ...EXECUTOR, records: { ...EXECUTOR.records, cid: 9 } } });
      return Promise.resolve(GONE);
    };
    const refused = await failure(another(ledger, { livenessOf }).retire(p, uid));
    expect(refused).toMatchObject({ code: "conflict" });
    expect(String(refused)).toContain("has gone on");
    expect(ledger.row("auth", `gate.${uid}`)).toMatchObject({ state: "frozen" });
  });

  test("W131L.06 who goes on with a takeover is written down before he does", async () => {
    const { ledger, uid, stage } = await left();
    const executor = { ...EXECUTOR, ledger: { ...EXECUTOR.ledger, cid: 7 } };
    expect(await another(ledger, { executor: () => executor }).takeOver(p, uid, 1)).toBe(2);
    expect(ledger.row("auth", stage)).toMatchObject({ executor });
  });
});
