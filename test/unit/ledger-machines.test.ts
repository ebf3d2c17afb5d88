/** The machines of identity (§13.1), each edge written out and every walk held to what must be true on all of them. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EndpointGateRow } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { type EndpointGateStep, stepEndpointGate } from "../../shared/protocol/ledger/endpoint-gate-machine.ts";
import { type GateStep, gateMayMove, stepGate } from "../../shared/protocol/ledger/gate-machine.ts";
import { type HeadStep, headMayMove, stepHead } from "../../shared/protocol/ledger/head-machine.ts";
import { GateRow, HeadRow } from "../../shared/protocol/ledger/rows.ts";

const KINDS = ["activation", "takeover", "registration", "retirement"] as const;
const GATES = ["open", "frozen", "retired"] as const;
const HEADS = ["active", "retiring", "retired"] as const;

const ops = fc.record({ opId: fc.constantFrom("a", "b", "c"), kind: fc.constantFrom(...KINDS) });

describe("the issuance gate", () => {
  test("W131L.04 every edge, written out", () => {
    const allowed = (["absent", ...GATES] as const).flatMap((from) =>
      GATES.flatMap((to) =>
        KINDS.flatMap((kind) => (gateMayMove(from, to, kind) ? [`${from} -> ${to} by ${kind}`] : [])),
      ),
    );
    expect(allowed.toSorted()).toEqual(
      [
        "absent -> frozen by activation",
        "frozen -> frozen by retirement",
        "frozen -> open by activation",
        "frozen -> retired by activation",
        "open -> frozen by takeover",
        "frozen -> open by takeover",
        "open -> frozen by registration",
        "frozen -> open by registration",
        "open -> frozen by retirement",
        "frozen -> retired by retirement",
      ].toSorted(),
    );
  });

  const steps = fc.array(fc.record({ to: fc.constantFrom(...GATES), op: ops }), { maxLength: 40 });

  test("W131L.04 W131L.05 on every walk a frozen gate is its operation's, and a retired one nobody's", () => {
    fc.assert(
      fc.property(steps, (walk) => {
        let gate: GateRow | undefined;
        for (const step of walk) {
          const move = stepGate(gate, step);
          if (move.kind !== "move") continue;
          expect(GateRow.safeParse(move.row).success).toBe(true);
          expectLawful(gate, move.row, step);
          gate = move.row;
          expect(stepGate(gate, step)).toEqual({ kind: "done" });
        }
      }),
      { numRuns: 2000 },
    );
  });

  function expectLawful(before: GateRow | undefined, after: GateRow, { op }: GateStep): void {
    expect(before !== undefined || (after.state === "frozen" && op.kind === "activation")).toBe(true);
    expect(before?.state).not.toBe("retired");
    expect(after.generation - (before?.generation ?? 0)).toBe(after.state === "open" ? 1 : 0);
    const held = before?.state === "frozen" ? before.op : undefined;
    const isMine = held === undefined || (held.opId === op.opId && held.kind === op.kind);
    const isLeft = held?.kind === "activation" && before?.generation === 0 && op.kind === "retirement";
    // A foreign one only ends what has never opened (decision 6).
    expect(isMine || (isLeft && after.state === "frozen")).toBe(true);
    expect(held?.kind !== "retirement" || after.state === "retired").toBe(true);
  }

  test.each<[string, GateRow | undefined, GateStep]>([
    ["an activation's freeze, by another activation", frozen("a", "activation"), to("frozen", "b", "activation")],
    ["an activation's freeze after it had opened once, by an end", frozen("a", "activation", 1), end("frozen", "b")],
    ["a takeover's freeze, by an end", frozen("a", "takeover"), end("frozen", "b")],
    ["a takeover's freeze, by the same id of another kind", frozen("a", "takeover"), to("open", "a", "registration")],
    ["an end's freeze, opened by its own operation", frozen("a", "retirement"), end("open", "a")],
    ["a takeover's freeze, retired by itself", frozen("a", "takeover"), to("retired", "a", "takeover")],
    ["a retired gate, by another end", { ...frozen("a", "retirement"), state: "retired" }, end("retired", "b")],
    ["a gate that is not there, by an end", undefined, end("frozen", "a")],
  ])("W131L.04 W131L.05 refused: %s", (_, gate, step) => {
    expect(stepGate(gate, step)).toEqual({ kind: "refused" });
  });

  function frozen(opId: string, kind: (typeof KINDS)[number], generation = kind === "activation" ? 0 : 1) {
    return { state: "frozen", generation, op: { opId, kind } } as const;
  }
  function to(state: (typeof GATES)[number], opId: string, kind: (typeof KINDS)[number]): GateStep {
    return { to: state, op: { opId, kind } };
  }
  function end(state: (typeof GATES)[number], opId: string): GateStep {
    return to(state, opId, "retirement");
  }
});

describe("the lifecycle head", () => {
  test("W131.03 every edge, written out", () => {
    const allowed = (["absent", ...HEADS] as const).flatMap((from) =>
      HEADS.flatMap((to) =>
        [true, false].flatMap((same) =>
          KINDS.flatMap((kind) =>
            headMayMove(from, to, same, kind) ? [`${from} -> ${to} by ${kind}, ${same ? "same" : "new"} UID`] : [],
          ),
        ),
      ),
    );
    expect(allowed.toSorted()).toEqual(
      [
        "absent -> active by activation, new UID",
        "retired -> active by activation, new UID",
        "active -> active by takeover, same UID",
        "active -> retiring by retirement, same UID",
        "retiring -> retired by retirement, same UID",
      ].toSorted(),
    );
  });

  const uids = fc.constantFrom("p", "q", "r").map((letter) => letter.repeat(26));
  const opIds = fc.constantFrom("a", "b", "c");
  const retirement = opIds.map((opId) => ({ opId, kind: "retirement" }) as const);
  const steps: fc.Arbitrary<HeadStep> = fc.oneof(
    fc.record({
      kind: fc.constant("activate" as const),
      owner: fc.constant("local"),
      actor: fc.constant("a"),
      lifecycleUid: uids,
      managerInstance: fc.constant("m"),
    }),
    fc.record({ kind: fc.constant("stamp" as const), lifecycleUid: uids, credentialId: fc.constantFrom("x", "y") }),
    fc.record({ kind: fc.constant("begin" as const), lifecycleUid: uids }),
    fc.record({
      kind: fc.constant("takeover" as const),
      lifecycleUid: uids,
      opId: opIds,
      fromEpoch: fc.integer({ min: 1, max: 4 }),
    }),
    fc.record({ kind: fc.constant("retire" as const), lifecycleUid: uids, op: retirement }),
    fc.record({ kind: fc.constant("free" as const), lifecycleUid: uids, op: retirement }),
  );

  test("W131.03 W131.06 on every walk a UID is current in one stretch, and its epoch never goes back", () => {
    fc.assert(
      fc.property(fc.array(steps, { maxLength: 60 }), (walk) => {
        let head: HeadRow | undefined;
        const reserved = new Set<string>();
        for (const step of walk) {
          // The reservation, which is never freed, refuses a UID that was ever used.
          if (step.kind === "activate" && head?.lifecycleUid !== step.lifecycleUid && reserved.has(step.lifecycleUid)) {
            continue;
          }
          const move = stepHead(head, step);
          if (move.kind !== "move") continue;
          expect(HeadRow.safeParse(move.row).success).toBe(true);
          expectLawful(head, move.row, step);
          head = move.row;
          reserved.add(head.lifecycleUid);
          // Each start of a daemon is another one; every other step stands.
          expect(stepHead(head, step).kind).toBe(step.kind === "begin" ? "move" : "done");
        }
      }),
      { numRuns: 3000 },
    );
  });

  function expectLawful(before: HeadRow | undefined, after: HeadRow, step: HeadStep): void {
    expect(after.lifecycleUid).toBe(step.lifecycleUid);
    const last = before?.lifecycleUid === after.lifecycleUid ? before : undefined;
    const freed = before === undefined || before.state === "retired";
    expect(last !== undefined || (freed && after.state === "active" && after.processEpoch === 1)).toBe(true);
    const rank = (row: HeadRow | undefined) => HEADS.indexOf(row?.state ?? "active");
    expect(rank(after) - rank(last)).toBe(step.kind === "retire" || step.kind === "free" ? 1 : 0);
    const moved = step.kind === "takeover" || step.kind === "begin" ? 1 : 0;
    expect(after.processEpoch - (last?.processEpoch ?? 1)).toBe(moved);
    // A root of the epoch that ended is not the root any more.
    const isStale = step.kind === "takeover" && after.currentCredentialId !== undefined;
    expect(isStale || (step.kind === "takeover" && after.lastTakeoverOpId !== step.opId)).toBe(false);
  }

  const active = {
    owner: "local",
    actor: "a",
    lifecycleUid: "p".repeat(26),
    managerInstance: "m",
    processEpoch: 2,
    state: "active",
  } as const;
  const takeover = (opId: string, fromEpoch: number) =>
    ({ kind: "takeover", lifecycleUid: active.lifecycleUid, opId, fromEpoch }) as const;

  test("W131.08 of two takeovers of one epoch the second finds the first one's id, and is refused", () => {
    const won = stepHead(active, takeover("first", 2));
    expect(won).toMatchObject({ kind: "move", row: { processEpoch: 3, lastTakeoverOpId: "first" } });
    const row = won.kind === "move" ? won.row : active;
    expect(stepHead(row, takeover("second", 2))).toEqual({ kind: "refused" });
    expect(stepHead(row, takeover("first", 2))).toEqual({ kind: "done" });
  });

  test.each<[string, HeadStep]>([
    ["a takeover of an epoch to come", takeover("x", 3)],
    ["another UID's end", { kind: "retire", lifecycleUid: "q".repeat(26), op: { opId: "x", kind: "retirement" } }],
    [
      "an end that a takeover asks for",
      { kind: "retire", lifecycleUid: active.lifecycleUid, op: { opId: "x", kind: "takeover" } },
    ],
    [
      "the last step before the first",
      { kind: "free", lifecycleUid: active.lifecycleUid, op: { opId: "x", kind: "retirement" } },
    ],
  ])("W131.03 refused on an active head: %s", (_, step) => {
    expect(stepHead(active, step)).toEqual({ kind: "refused" });
  });
});

describe("the gate of a serving instance", () => {
  const born = {
    state: "frozen",
    generation: 0,
    processEpoch: 1,
    registrationRevision: 0,
    nameAuthorityRevision: 1,
    principal: "local.svc_x",
    op: { opId: "a", kind: "activation" },
  } as const;
  const steps: fc.Arbitrary<EndpointGateStep> = fc.oneof(
    fc.record({ to: fc.constantFrom("frozen" as const, "retired" as const), op: ops }),
    fc.record({
      to: fc.constant("open" as const),
      opId: fc.constantFrom("a", "b", "c"),
      processEpoch: fc.integer({ min: 1, max: 4 }),
      registrationRevision: fc.integer({ min: 1, max: 4 }),
    }),
  );

  test("W131L.04 W131L.08 on every walk the epoch moves with a takeover's opening alone, and the gate says whose", () => {
    fc.assert(
      fc.property(fc.array(steps, { maxLength: 40 }), (walk) => {
        let gate: EndpointGateRow = born;
        for (const step of walk) {
          const move = stepEndpointGate(gate, step);
          if (move.kind !== "move") continue;
          const before = gate;
          gate = move.row;
          expect(EndpointGateRow.safeParse(gate).success).toBe(true);
          const tookOver = before.state === "frozen" && before.op.kind === "takeover" && gate.state === "open";
          expect(gate.processEpoch - before.processEpoch).toBe(tookOver ? 1 : 0);
          const taker = before.state === "frozen" && tookOver ? before.op.opId : before.lastTakeoverOpId;
          expect(gate.lastTakeoverOpId).toBe(taker);
          expect(gate.principal).toBe(before.principal);
          const regress = before.state === "open" && gate.registrationRevision < before.registrationRevision;
          expect(regress).toBe(false);
        }
      }),
      { numRuns: 2000 },
    );
  });
});
