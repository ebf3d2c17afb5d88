/** Credentials of the trust program get their rows, and none of them can keep a space from being served. */
import { expect, test } from "vitest";
import { createIssued } from "../../shared/ledger/issued.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { matching } from "../support/cli.ts";
import { memoryLedger } from "../support/memory-ledger.ts";

const NOW = 1000;
const one = (uid: string, key: string, more: object = {}) => ({
  owner: `u_${"a".repeat(26)}`,
  actor: "operator",
  uid: uid.repeat(26),
  credentialId: `U${key.repeat(55)}`,
  expires: NOW + 60,
  ...more,
});

test("W131L.01 each listed credential that still lives gets its row, once", async () => {
  const ledger = memoryLedger();
  const enter = createIssued(ledger.store(), () => NOW);
  const list = [one("a", "A"), one("b", "B", { expires: NOW, actor: "late" })];
  expect(await enter(() => list)).toEqual([]);
  expect(ledger.keys("auth").filter((key) => key.startsWith("cred."))).toEqual([
    `cred.${"a".repeat(26)}.U${"A".repeat(55)}`,
  ]);
  const writes = ledger.writes.length;
  expect(await enter(() => list)).toEqual([]);
  expect(ledger.writes.length).toBe(writes);
});

test("a list that can't be read is passed over by name, and read again the next time", async () => {
  const ledger = memoryLedger();
  const enter = createIssued(ledger.store(), () => NOW);
  const unreadable = (): never => {
    throw new CotalError(ErrorCode.FailedPrecondition, "issued.json does not parse");
  };
  expect(await enter(unreadable)).toEqual([{ principal: "everybody on the list", why: "issued.json does not parse" }]);
  expect(ledger.writes.length).toBe(0);
  expect(await enter(() => [one("a", "A")])).toEqual([]);
  expect(ledger.writes.length).toBeGreaterThan(0);
});

test("a lifecycle that another one has replaced is passed over, and the rest of the list is entered", async () => {
  const ledger = memoryLedger();
  const enter = createIssued(ledger.store(), () => NOW);
  await enter(() => [one("a", "A")]);
  const passed = await enter(() => [one("c", "C"), one("d", "D", { actor: "other" })]);
  expect(passed).toMatchObject([{ principal: `u_${"a".repeat(26)}.operator`, why: matching(/active/) }]);
  expect(ledger.keys("auth")).toContain(`cred.${"d".repeat(26)}.U${"D".repeat(55)}`);
});

test("W131L.01 one that was taken back is passed over, in a process that never saw it too, and the rest of the list is entered", async () => {
  const ledger = memoryLedger();
  await createIssued(ledger.store(), () => NOW)(() => [one("a", "A")]);
  const key = `cred.${"a".repeat(26)}.U${"A".repeat(55)}`;
  const found = await ledger.store().read("auth", key);
  if (found.kind !== "value") throw new Error("it has no row");
  await ledger.store().cas("auth", key, { ...(found.value as object), state: "revoked" }, found.revision);
  const passed = await createIssued(
    ledger.store(),
    () => NOW,
  )(() => [one("a", "A"), one("d", "D", { actor: "other" })]);
  expect(passed).toMatchObject([{ principal: `u_${"a".repeat(26)}.operator`, why: matching(/taken back/) }]);
  expect(ledger.keys("auth")).toContain(`cred.${"d".repeat(26)}.U${"D".repeat(55)}`);
});
