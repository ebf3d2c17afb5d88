/** Rows of the identity ledger as closed schemas, and their keys. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readHead } from "../../shared/ledger/moves.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import {
  AclRow,
  ActivationStage,
  CredentialRow,
  FrontierRow,
  GateRow,
  HeadRow,
  UidRow,
  ledgerKey,
} from "../../shared/protocol/ledger/rows.ts";
import { channels, lifecycleUids, principals } from "../support/arbitraries.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";

const UID = "abcdefghijklmnopqrstuvwxyz";
const USER = `U${"A".repeat(55)}`;
const op = { opId: "op1", kind: "retirement" } as const;
const head = { owner: "local", actor: "a", lifecycleUid: UID, managerInstance: "m", processEpoch: 1 };

const ROWS = {
  uid: { schema: UidRow, row: { v: 1, lifecycleUid: UID, owner: "local", actor: "a", opId: "op1", at: 0 } },
  "open gate": { schema: GateRow, row: { state: "open", generation: 1 } },
  "frozen gate": { schema: GateRow, row: { state: "frozen", generation: 0, op } },
  "retired gate": { schema: GateRow, row: { state: "retired", generation: 2, op } },
  "W131.03 active head": { schema: HeadRow, row: { ...head, state: "active" } },
  "W131.03 retiring head": { schema: HeadRow, row: { ...head, state: "retiring", op } },
  "W131.03 retired head": { schema: HeadRow, row: { ...head, state: "retired" } },
  credential: {
    schema: CredentialRow,
    row: {
      credentialId: USER,
      holderPrincipal: "local.a",
      lifecycleUid: UID,
      sourceChain: ["root"],
      state: "active",
      exp: 0,
    },
  },
  stage: {
    schema: ActivationStage,
    row: { v: 1, opId: "op1", owner: "local", actor: "a", lifecycleUid: UID, inboxNonce: "n", requestDigest: "d" },
  },
  frontier: { schema: FrontierRow, row: { lifecycleUid: UID, opId: "op1", streams: { DM_main: 7 } } },
  acl: {
    schema: AclRow,
    row: { v: 1, name: "a", allowSubscribe: ["team.>"], durables: true, credential: USER, at: 0 },
  },
};

describe("every row is closed", () => {
  test.each(Object.entries(ROWS))("%s", (_name, { schema, row }) => {
    expect(schema.safeParse(row).success).toBe(true);
    expect(schema.safeParse({ ...row, extra: 1 }).success).toBe(false);
    for (const field of Object.keys(row)) {
      const without = Object.fromEntries(Object.entries(row).filter(([key]) => key !== field));
      expect({ field, ok: schema.safeParse(without).success }).toEqual({ field, ok: false });
      expect({ field, ok: schema.safeParse({ ...row, [field]: { x: 1 } }).success }).toEqual({
        field,
        // A frontier's streams are an object of counts.
        ok: field === "streams",
      });
    }
  });

  test.each<[string, { safeParse: (value: unknown) => { success: boolean } }, unknown]>([
    ["an open gate with an operation", GateRow, { state: "open", generation: 1, op }],
    ["a frozen gate without one", GateRow, { state: "frozen", generation: 1 }],
    ["a gate of another state", GateRow, { state: "closed", generation: 1 }],
    ["a negative generation", GateRow, { state: "open", generation: -1 }],
    ["an operation of another kind", GateRow, { state: "frozen", generation: 1, op: { opId: "x", kind: "repair" } }],
    ["an operation without an id", GateRow, { state: "frozen", generation: 1, op: { opId: "", kind: "takeover" } }],
    ["W131.03 an active head that holds an operation", HeadRow, { ...head, state: "active", op }],
    ["W131.03 a retiring head without one", HeadRow, { ...head, state: "retiring" }],
    ["W131.03 a retired head that holds one", HeadRow, { ...head, state: "retired", op }],
    ["W131.03 a head of an unlawful UID", HeadRow, { ...head, state: "active", lifecycleUid: "x" }],
    ["W131.03 a head of an unlawful actor", HeadRow, { ...head, state: "active", actor: "a-b" }],
    ["a credential that is no user key", CredentialRow, { ...ROWS.credential.row, credentialId: `A${"A".repeat(55)}` }],
    ["a credential without a source", CredentialRow, { ...ROWS.credential.row, sourceChain: [] }],
    ["an ACL of what is no pattern", AclRow, { ...ROWS.acl.row, allowSubscribe: ["a..b"] }],
    ["an ACL with a role that is none", AclRow, { ...ROWS.acl.row, role: "*" }],
  ])("%s is corruption", (_what, schema, row) => {
    expect(schema.safeParse(row).success).toBe(false);
  });
});

describe("keys", () => {
  const p = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };
  test("spelled by hand", () => {
    expect(ledgerKey.uid(UID)).toBe(`uid.${UID}`);
    expect(ledgerKey.gate(UID)).toBe(`gate.${UID}`);
    expect(ledgerKey.stage("op1")).toBe("stage.op1.activation");
    expect(ledgerKey.frontier(UID)).toBe(`frontier.${UID}`);
    expect(ledgerKey.cred(UID, USER)).toBe(`cred.${UID}.${USER}`);
    expect(ledgerKey.credsOf(UID)).toBe(`cred.${UID}.*`);
    expect(ledgerKey.head(p)).toBe("lifecycle.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice");
    expect(ledgerKey.acl(p, UID)).toBe(`u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice.${UID}`);
    expect(ledgerKey.member(p, UID, "team.>")).toMatch(
      /^u_aaaaaaaaaaaaaaaaaaaaaaaaaa\.alice\.[a-z]{26}\.[0-9a-f]{64}$/,
    );
  });

  test("W8.23 every key of a lifecycle holds its UID, and a successor's differ", () => {
    fc.assert(
      fc.property(principals, lifecycleUids, lifecycleUids, channels, (who, one, two, channel) => {
        fc.pre(one !== two);
        const keys = (uid: string) => [
          ledgerKey.uid(uid),
          ledgerKey.gate(uid),
          ledgerKey.cred(uid, USER),
          ledgerKey.acl(who, uid),
          ledgerKey.member(who, uid, channel),
        ];
        expect(keys(one).filter((key) => !key.includes(one))).toEqual([]);
        expect(keys(one).filter((key) => keys(two).includes(key))).toEqual([]);
      }),
    );
  });

  test("a pattern of 4096 characters has a key of lawful length (H32)", () => {
    expect(ledgerKey.member(p, UID, "a".repeat(4096)).length).toBeLessThan(300);
  });

  test.each([principal("local", "b"), principal("other", "a")])(
    "W131.03 a head is none under the key of %j",
    async (other) => {
      const own = principal("local", "a");
      const row = HeadRow.parse({ ...head, state: "active" });
      const ledger = memoryLedger();
      for (const p of [own, other]) ledger.put("records", ledgerKey.head(p), row);
      expect((await readHead(ledger.store(), own))?.value).toEqual(row);
      expect(await failure(readHead(ledger.store(), other))).toMatchObject({ code: "failed-precondition" });
    },
  );
});
