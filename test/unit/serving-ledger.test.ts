/** The ledger's half of serving (§13.1): whose name it is, crashes at every write, owners, keys, and closed rows. */
import { describe, expect, test } from "vitest";
import { OWNER, STRANGER } from "../support/plane-parts.ts";
import { Died, type MemoryLedger, crashLoop, memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";
import {
  A,
  B,
  C,
  D,
  ENDPOINT,
  EXPIRES,
  OPERATOR,
  activeOf,
  assigned,
  assignedLedger,
  credentialsOf,
  entryOf,
  gateOf,
  registered,
  served,
  servingOver,
} from "../support/serving-parts.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { LIFECYCLE_UID } from "../../shared/protocol/base/grammar.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";

const WHENS = ["before", "after"] as const;

/** Runs it in a process that dies at its n-th write; says whether it did. */
async function dies(
  ledger: MemoryLedger,
  at: number,
  when: "before" | "after",
  run: (store: LedgerStore) => Promise<unknown>,
) {
  try {
    await run(ledger.store({ at, when }));
    return false;
  } catch (thrown) {
    if (thrown instanceof Died) return true;
    throw thrown;
  }
}

const uidsOf = (ledger: MemoryLedger): string[] => ledger.keys("records").filter((key) => key.startsWith("uid."));

describe("a first registration", () => {
  test("W131.15 W131L.08 the writes stand in the normative order, and the rows say whose they are", async () => {
    const { ledger, instanceId } = await served();
    const gate = `auth/${endpointKey.gate(ENDPOINT, instanceId)}`;
    expect(ledger.writes).toEqual([
      "auth/servicename.com_acme_deploy",
      `auth/stage.serve-${A}.serving`,
      `records/uid.${instanceId}`,
      gate,
      gate,
      `auth/epcred.com_acme_deploy.${instanceId}.${A}`,
      gate,
    ]);
    expect(instanceId).toMatch(LIFECYCLE_UID);
    const principal = `${OWNER}.svc_${instanceId}`;
    expect(gateOf(ledger, instanceId)).toEqual({
      state: "open",
      generation: 1,
      processEpoch: 1,
      registrationRevision: 7,
      nameAuthorityRevision: 1,
      principal,
    });
    expect(credentialsOf(ledger)).toEqual([
      {
        credentialId: A,
        endpoint: ENDPOINT,
        holderPrincipal: principal,
        lifecycleUid: instanceId,
        processEpoch: 1,
        sourceChain: ["root"],
        state: "active",
        exp: EXPIRES,
      },
    ]);
    expect(ledger.row("records", ledgerKey.uid(instanceId))).toMatchObject({
      owner: OWNER,
      actor: `svc_${instanceId}`,
      opId: `serve-${A}`,
    });
  });

  test("W131.07 the gate is born frozen under its activation, and nothing is entered before it opens", async () => {
    const { ledger, serving } = await assignedLedger();
    const begun = await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A });
    expect(gateOf(ledger, begun.instanceId)).toMatchObject({
      state: "frozen",
      generation: 0,
      op: { opId: begun.opId, kind: "activation" },
    });
    expect((await failure(serving.enter(entryOf(begun, A)))).code).toBe("expired");
    expect(credentialsOf(ledger)).toEqual([]);
  });

  describe.each(WHENS)("W131.07 W131.15 W131L.08 that dies %s each of its writes", (when) => {
    test("W131.15 W131L.01 is the same instance at every retry, with one row", async () => {
      const ledger = memoryLedger();
      const seen = new Set<string>();
      const { value, deaths } = await crashLoop(ledger, when, async (store) => {
        const serving = servingOver(store);
        await assigned(serving);
        const begun = await registered(serving, { userKey: A });
        seen.add(begun.instanceId);
        return begun;
      });
      expect(deaths).toBeGreaterThan(5);
      expect(seen.size).toBe(1);
      expect(value.epoch).toBe(1);
      expect(uidsOf(ledger)).toEqual([`uid.${value.instanceId}`]);
      expect(gateOf(ledger, value.instanceId)).toMatchObject({ state: "open", generation: 1, processEpoch: 1 });
      expect(activeOf(ledger)).toEqual(["A1"]);
    });

    test("W131.15 once, it converges at the first retry", async () => {
      for (let at = 1; ; at += 1) {
        const { ledger } = await assignedLedger();
        const died = await dies(ledger, at, when, (store) => registered(servingOver(store), { userKey: A }));
        const { instanceId, epoch } = await registered(servingOver(ledger.store()), { userKey: A });
        expect([at, uidsOf(ledger), epoch]).toEqual([at, [`uid.${instanceId}`], 1]);
        expect([at, gateOf(ledger, instanceId).generation, activeOf(ledger)]).toEqual([at, 1, ["A1"]]);
        if (!died) break;
      }
    });

    test("W131.07 and is then taken over by another key: it ends with that key alone", async () => {
      for (let at = 1; ; at += 1) {
        const { ledger } = await assignedLedger();
        const died = await dies(ledger, at, when, (store) => registered(servingOver(store), { userKey: A }));
        const [gate] = ledger.keys("auth").filter((key) => key.startsWith("epgate."));
        const instanceId = gate?.split(".").at(-1);
        const begun = await registered(servingOver(ledger.store()), { userKey: B, instanceId });
        expect([at, activeOf(ledger)]).toEqual([at, [`B${begun.epoch}`]]);
        // Whoever began it first is told, if he was only slow.
        const late = instanceId === undefined ? undefined : entryOf({ instanceId, epoch: 1 }, A);
        const outcome = late === undefined ? "expired" : (await failure(servingOver(ledger.store()).enter(late))).code;
        expect([at, outcome, activeOf(ledger)]).toEqual([at, "expired", [`B${begun.epoch}`]]);
        if (!died) break;
      }
    });
  });
});

describe("a takeover", () => {
  describe.each(WHENS)("W131.07 W131L.08 that dies %s each of its writes", (when) => {
    test("W131.07 converges by a retry of the same key: one epoch, one active row, the predecessor revoked", async () => {
      for (let at = 1; ; at += 1) {
        const { ledger, instanceId } = await served();
        const died = await dies(ledger, at, when, (store) =>
          registered(servingOver(store), { userKey: B, instanceId, revision: 8 }),
        );
        const begun = await registered(servingOver(ledger.store()), { userKey: B, instanceId, revision: 8 });
        expect([at, begun.epoch, activeOf(ledger)]).toEqual([at, 2, ["B2"]]);
        expect([at, gateOf(ledger, instanceId)]).toEqual([
          at,
          expect.objectContaining({
            state: "open",
            generation: 2,
            processEpoch: 2,
            registrationRevision: 8,
            lastTakeoverOpId: `take-${B}`,
          }),
        ]);
        expect(credentialsOf(ledger).find(({ credentialId }) => credentialId === A)?.state).toBe("revoked");
        if (!died) break;
      }
    });

    test("W131.07 converges through every death in a row", async () => {
      const { ledger, instanceId } = await served();
      const { value, deaths } = await crashLoop(ledger, when, (store) =>
        registered(servingOver(store), { userKey: B, instanceId }),
      );
      expect([value.epoch, deaths > 1, activeOf(ledger)]).toEqual([2, true, ["B2"]]);
    });

    test("W131.07 is finished under its own id by another key, which then begins its own", async () => {
      for (let at = 1; ; at += 1) {
        const { ledger, instanceId } = await served();
        const died = await dies(ledger, at, when, (store) =>
          registered(servingOver(store), { userKey: B, instanceId }),
        );
        const { epoch } = await registered(servingOver(ledger.store()), { userKey: C, instanceId });
        const gate = gateOf(ledger, instanceId);
        expect([at, activeOf(ledger), gate]).toEqual([
          at,
          [`C${epoch}`],
          expect.objectContaining({
            state: "open",
            processEpoch: epoch,
            generation: epoch,
            lastTakeoverOpId: `take-${C}`,
          }),
        ]);
        expect((await failure(servingOver(ledger.store()).enter(entryOf({ instanceId, epoch: 2 }, B)))).code).toBe(
          "expired",
        );
        if (!died) break;
      }
    });
  });

  test("W131.07 a barrier that throws leaves the gate frozen, the family revoked, and nothing can be entered", async () => {
    const { ledger, instanceId } = await served();
    const stuck = servingOver(ledger.store(), { barrier: () => Promise.reject(new Error("not proved")) });
    await expect(stuck.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId })).rejects.toThrow(
      "not proved",
    );
    const frozen = { state: "frozen", processEpoch: 1, generation: 1, op: { opId: `take-${B}`, kind: "takeover" } };
    expect(gateOf(ledger, instanceId)).toMatchObject(frozen);
    for (const [key, epoch] of [
      [A, 1],
      [B, 1],
      [B, 2],
      [C, 2],
    ] as const) {
      expect((await failure(stuck.enter(entryOf({ instanceId, epoch }, key)))).code).toBe("expired");
    }
    expect(activeOf(ledger)).toEqual([]);
    expect(credentialsOf(ledger).map(({ credentialId }) => credentialId)).toEqual([A]);
    // Another key can't come by it either.
    await expect(stuck.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: C, instanceId })).rejects.toThrow(
      "not proved",
    );
    expect(gateOf(ledger, instanceId)).toMatchObject(frozen);
    // And the same key goes on where it was.
    expect((await registered(servingOver(ledger.store()), { userKey: B, instanceId })).epoch).toBe(2);
  });

  test("W131.07 what a registration says when its predecessor was revoked holds for every later barrier", async () => {
    const { ledger, instanceId } = await served();
    const asked: unknown[] = [];
    const counted = servingOver(ledger.store(), {
      barrier: async (holder, revoked) => {
        asked.push([holder, revoked.map(({ credentialId, state, exp }) => [credentialId, state, exp])]);
        if (asked.length === 1) throw new Error("not yet");
      },
    });
    const request = { endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId };
    await expect(counted.begin(request)).rejects.toThrow("not yet");
    await counted.begin(request);
    const family = [{ owner: OWNER, actor: `svc_${instanceId}` }, [[A, "revoked", EXPIRES]]];
    expect(asked).toEqual([family, family]);
  });

  test("W131.07 a key that the instance was taken from does not take it back: nothing is frozen for it", async () => {
    const { ledger, instanceId } = await served();
    await registered(servingOver(ledger.store()), { userKey: B, instanceId });
    const error = await failure(registered(servingOver(ledger.store()), { userKey: A, instanceId }));
    expect([error.code, error.outcome]).toEqual(["already-exists", "not-executed"]);
    expect([activeOf(ledger), gateOf(ledger, instanceId).state]).toEqual([["B2"], "open"]);
  });

  test("W131.07 the answer that was lost is given again to the process that serves", async () => {
    const { ledger, instanceId } = await served();
    const before = gateOf(ledger, instanceId);
    const serving = servingOver(ledger.store(), { barrier: () => Promise.reject(new Error("asked")) });
    expect((await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A, instanceId })).epoch).toBe(1);
    expect((await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A })).instanceId).toBe(instanceId);
    expect(gateOf(ledger, instanceId)).toEqual(before);
  });

  test("W131.07 a process that read the gate long ago revokes nothing of those who came after", async () => {
    const { ledger, instanceId } = await served();
    const quick = servingOver(ledger.store());
    const store = ledger.store();
    let overtaken: Promise<unknown> | undefined;
    const slow: LedgerStore = {
      ...store,
      // B has frozen the gate and looks for what it has to revoke; meanwhile C finishes that, and serves.
      scan: async (asked, pick) => {
        await (overtaken ??= registered(quick, { userKey: C, instanceId }));
        return store.scan(asked, pick);
      },
    };
    const late = await servingOver(slow).begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });
    // It did not take the epoch that C serves for its own: it took the instance over again.
    expect([late.epoch, activeOf(ledger)]).toEqual([4, []]);
    expect(gateOf(ledger, instanceId)).toMatchObject({ state: "frozen", processEpoch: 3, op: { opId: `take-${B}` } });
  });

  test("W131.07 a frozen gate is opened by its own operation, at the next epoch and no other", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    const begun = await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });
    const at = { ...begun, endpoint: ENDPOINT, registrationRevision: 8 };
    const frozen = gateOf(ledger, instanceId);
    for (const over of [{ opId: `take-${C}` }, { opId: `serve-${A}` }, { epoch: 1 }, { epoch: 3 }]) {
      expect([over, (await failure(serving.open({ ...at, ...over }))).code]).toEqual([over, "expired"]);
    }
    expect((await failure(serving.open({ ...at, instanceId: "z".repeat(26) }))).code).toBe("expired");
    expect(gateOf(ledger, instanceId)).toEqual(frozen);
    await serving.open(at);
    for (const epoch of [1, 3]) expect((await failure(serving.open({ ...at, epoch }))).code).toBe("expired");
  });

  test("W131L.08 a registration revision never goes back, whichever of two requests comes late", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    const at = { endpoint: ENDPOINT, instanceId, opId: `serve-${A}`, epoch: 1 };
    await serving.open({ ...at, registrationRevision: 9 });
    await serving.open({ ...at, registrationRevision: 7 });
    expect(gateOf(ledger, instanceId)).toMatchObject({ state: "open", registrationRevision: 9, generation: 1 });
  });
});

describe("who may", () => {
  test("W132.01 W132.16 a name has one owner: the same again is no fault, another is refused", async () => {
    const { ledger } = await served();
    const serving = servingOver(ledger.store());
    const before = ledger.row("auth", endpointKey.name(ENDPOINT));
    await assigned(serving);
    const other = await failure(serving.assign({ endpoint: ENDPOINT, owner: STRANGER, by: OPERATOR }));
    expect([other.code, other.outcome]).toEqual(["already-exists", "not-executed"]);
    expect(ledger.row("auth", endpointKey.name(ENDPOINT))).toEqual(before);
  });

  test.each(WHENS)("W132.16 an assignment that dies %s its write is repeated without a fault", async (when) => {
    const ledger = memoryLedger();
    await crashLoop(ledger, when, (store) => assigned(servingOver(store)));
    expect(ledger.row("auth", endpointKey.name(ENDPOINT))).toMatchObject({
      owner: OWNER,
      endpoint: ENDPOINT,
      kind: "service-name",
    });
  });

  test("W132.16 W132.01 another owner begins nothing, takes nothing over, enters nothing, and writes nothing", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    await serving.assign({ endpoint: "com.other.thing", owner: STRANGER, by: OPERATOR });
    const before = ledger.writes.length;
    const asks = [
      serving.begin({ endpoint: ENDPOINT, owner: STRANGER, userKey: B }),
      serving.begin({ endpoint: ENDPOINT, owner: STRANGER, userKey: B, instanceId }),
      serving.begin({ endpoint: "com.nobody.thing", owner: OWNER, userKey: B }),
      serving.begin({ endpoint: "com.other.thing", owner: STRANGER, userKey: B, instanceId }),
      serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId: "z".repeat(26) }),
      serving.enter(entryOf({ instanceId, epoch: 1 }, B, STRANGER)),
    ];
    const codes = await Promise.all(asks.map(async (ask) => (await failure(ask)).code));
    const denied = "permission-denied";
    expect(codes).toEqual([denied, denied, denied, "not-found", "not-found", "expired"]);
    expect(ledger.writes.length).toBe(before);
  });

  test("W131.15 an id that is taken is refused, by whomever it was reserved, and stays his", async () => {
    const bytes = (count: number) => new Uint8Array(count).fill(9);
    const ledger = memoryLedger();
    const serving = servingOver(ledger.store(), { random: bytes });
    await assigned(serving);
    const first = await registered(serving, { userKey: A });
    const error = await failure(registered(serving, { userKey: B }));
    expect([error.code, activeOf(ledger)]).toEqual(["already-exists", ["A1"]]);
    expect(ledger.row("records", ledgerKey.uid(first.instanceId))).toMatchObject({ opId: `serve-${A}` });
    // The refusal is the same at a retry, and the gate of the first is untouched.
    expect((await failure(registered(serving, { userKey: B }))).code).toBe("already-exists");
    expect(gateOf(ledger, first.instanceId)).toMatchObject({ state: "open", generation: 1 });
  });

  test("W131.15 each key that registers anew is an instance of its own, never one that was", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    const second = await registered(serving, { userKey: B });
    expect(second.instanceId).not.toBe(instanceId);
    expect(activeOf(ledger).toSorted()).toEqual(["A1", "B1"]);
    await serving.assign({ endpoint: "com.acme.other", owner: OWNER, by: OPERATOR });
    const error = await failure(serving.begin({ endpoint: "com.acme.other", owner: OWNER, userKey: A }));
    expect(error.code).toBe("already-exists");
  });

  test("W131.07 a key that never took the instance gets no credential of it, at whatever epoch", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    for (const epoch of [1, 2]) {
      expect((await failure(serving.enter(entryOf({ instanceId, epoch }, B)))).code).toBe("expired");
    }
    expect(activeOf(ledger)).toEqual(["A1"]);
  });
});

describe("W131L.01 a renewal", () => {
  test("W131L.01 lengthens the one row of its key, never shortens it, and touches the gate", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    const entry = entryOf({ instanceId, epoch: 1 }, A);
    await serving.enter({ ...entry, expires: EXPIRES + 60 });
    await serving.enter({ ...entry, expires: EXPIRES - 60 });
    expect(credentialsOf(ledger).map(({ exp, state }) => [exp, state])).toEqual([[EXPIRES + 60, "active"]]);
    expect(ledger.writes.at(-1)).toBe(`auth/${endpointKey.gate(ENDPOINT, instanceId)}`);
  });

  test("W131L.01 never brings back a row that was revoked, though its gate is open at its epoch", async () => {
    const { ledger, instanceId } = await served();
    const key = endpointKey.cred(ENDPOINT, instanceId, A);
    ledger.put("auth", key, { ...Object(ledger.row("auth", key)), state: "revoked" });
    const before = ledger.writes.length;
    for (const expires of [EXPIRES, EXPIRES + 60]) {
      const entry = { ...entryOf({ instanceId, epoch: 1 }, A), expires };
      expect((await failure(servingOver(ledger.store()).enter(entry))).code).toBe("expired");
    }
    expect([activeOf(ledger), ledger.writes.length]).toEqual([[], before]);
  });

  test.each(WHENS)("W131L.01 that dies %s each write leaves one active row that a retry finds", async (when) => {
    const { ledger, instanceId } = await served();
    const entry = { ...entryOf({ instanceId, epoch: 1 }, A), expires: EXPIRES + 60 };
    const { deaths } = await crashLoop(ledger, when, (store) => servingOver(store).enter(entry));
    expect(deaths).toBeGreaterThan(0);
    expect(credentialsOf(ledger).map(({ exp, state }) => [exp, state])).toEqual([[EXPIRES + 60, "active"]]);
  });

  test("W131L.01 W131.07 an entry that lost to a takeover leaves no active row, even if its process died", async () => {
    const { ledger, instanceId } = await served();
    // B takes the instance over and dies between its row and the gate.
    const serving = servingOver(ledger.store());
    const begun = await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });
    await serving.open({ ...begun, endpoint: ENDPOINT, registrationRevision: 8 });
    await dies(ledger, 1, "after", (store) => servingOver(store).enter(entryOf(begun, B)));
    expect(activeOf(ledger)).toEqual(["B2"]);
    await registered(serving, { userKey: C, instanceId });
    expect(activeOf(ledger)).toEqual(["C3"]);
    expect((await failure(serving.enter(entryOf(begun, B)))).code).toBe("expired");
    expect(activeOf(ledger)).toEqual(["C3"]);
  });
});

describe("W131L.01 a row that was written too late", () => {
  test("W131L.01 W131.07 its process died, and its retry is refused and leaves no active row behind", async () => {
    const { ledger, instanceId } = await served();
    const serving = servingOver(ledger.store());
    const begun = await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });
    await serving.open({ ...begun, endpoint: ENDPOINT, registrationRevision: 8 });
    // C takes the instance over between B's look at the gate and B's row.
    const dying = ledger.store({ at: 1, when: "after" });
    const late: LedgerStore = {
      ...dying,
      create: async (...row) => {
        await registered(serving, { userKey: C, instanceId });
        return dying.create(...row);
      },
    };
    await expect(servingOver(late).enter(entryOf(begun, B))).rejects.toThrow("after write 1");
    expect(activeOf(ledger).toSorted()).toEqual(["B2", "C3"]);
    expect((await failure(serving.enter(entryOf(begun, B)))).code).toBe("expired");
    expect(activeOf(ledger)).toEqual(["C3"]);
    // It goes with the next takeover as well, if nobody comes again.
    await registered(serving, { userKey: D, instanceId });
    expect(activeOf(ledger)).toEqual(["D4"]);
  });
});

describe("W131L.08 rows are closed", () => {
  const rows = (instanceId: string) =>
    [
      ["auth", endpointKey.name(ENDPOINT)],
      ["auth", endpointKey.gate(ENDPOINT, instanceId)],
      ["auth", endpointKey.cred(ENDPOINT, instanceId, A)],
      ["auth", endpointKey.stage(`serve-${A}`)],
      ["records", ledgerKey.uid(instanceId)],
    ] as const;

  /** Everything that reads rows; each of these five rows stands in the way of at least one. */
  const asks = (ledger: MemoryLedger, instanceId: string) => {
    const serving = servingOver(ledger.store());
    return [
      () => registered(serving, { userKey: A }),
      () => registered(serving, { userKey: B, instanceId }),
      () => serving.enter(entryOf({ instanceId, epoch: 1 }, A)),
    ];
  };

  test.each([0, 1, 2, 3, 4])(
    "W131L.08 row %i with a field that nobody knows refuses, and is left as it is",
    async (which) => {
      const { ledger, instanceId } = await served();
      const [bucket, key] = rows(instanceId)[which] ?? ["auth", ""];
      const odd = { ...(ledger.row(bucket, key) as object), later: 1 };
      ledger.put(bucket, key, odd);
      const outcomes = await Promise.allSettled(asks(ledger, instanceId).map((ask) => ask()));
      expect(
        outcomes.map((one) => (one.status === "rejected" ? String((one.reason as Error).message) : "")),
      ).toContainEqual(expect.stringContaining(key));
      expect(ledger.row(bucket, key)).toEqual(odd);
    },
  );

  test.each([0, 1, 2, 3, 4])("W131L.08 row %i that was deleted is corruption, never absence", async (which) => {
    const { ledger, instanceId } = await served();
    const [bucket, key] = rows(instanceId)[which] ?? ["auth", ""];
    ledger.mark(bucket, key);
    const said: string[] = [];
    for (const ask of asks(ledger, instanceId)) {
      said.push(
        await ask().then(
          () => "done",
          (error: CotalError) => `${error.code}: ${error.message}`,
        ),
      );
    }
    expect(said).toContainEqual(expect.stringMatching(/^failed-precondition: the ledger row .* was deleted/));
    expect(said.filter((one) => one.includes(`${key} was deleted`))).not.toEqual([]);
    expect(ledger.row(bucket, key)).toBeUndefined();
  });

  test("W131L.08 a gate of another principal is nobody's whose name it is", async () => {
    const { ledger, instanceId } = await served();
    const key = endpointKey.gate(ENDPOINT, instanceId);
    ledger.put("auth", key, { ...gateOf(ledger, instanceId), principal: `${STRANGER}.svc_${instanceId}` });
    const serving = servingOver(ledger.store());
    expect((await failure(registered(serving, { userKey: B, instanceId }))).code).toBe("not-found");
    expect((await failure(serving.enter(entryOf({ instanceId, epoch: 1 }, A)))).code).toBe("expired");
  });

  test("W131.07 an instance that is being retired, or is, is not begun again", async () => {
    for (const state of ["frozen", "retired"] as const) {
      const { ledger, instanceId } = await served();
      const gate = { ...gateOf(ledger, instanceId), state, op: { opId: "end", kind: "retirement" } };
      ledger.put("auth", endpointKey.gate(ENDPOINT, instanceId), gate);
      const serving = servingOver(ledger.store());
      expect((await failure(registered(serving, { userKey: B, instanceId }))).code).toBe("failed-precondition");
      expect((await failure(registered(serving, { userKey: A }))).code).toBe("expired");
      expect(gateOf(ledger, instanceId)).toEqual(gate);
    }
  });
});
