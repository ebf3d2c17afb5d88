/** The audit of a whole run (§13.1): what was issued, as brokers and the exchange say, beside the rows of the ledgers. */
import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ISSUED, ROWS, auditIssued, lineOf } from "../../scripts/test/issued.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cotal-issued-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const issued = (by: string, id: string, whose: string): void =>
  appendFileSync(join(folder, `${by}${ISSUED}`), lineOf(id, whose));
const row = (by: string, id: string, key = ""): void => appendFileSync(join(folder, `${by}${ROWS}`), lineOf(id, key));

test("W131L.01 a credential whose row was looked for and not found is told, with whose it is", () => {
  issued("1", "a#0", "main alice");
  row("1", "a#0", "natkey.UA");
  issued("2", "a#1", "main alice");
  row("2", "a#1");
  expect(auditIssued(folder)).toEqual({ without: ["a#1 (main alice)"], issued: 2, unasked: 0 });
});

test("W131L.01 a row that was found once was there, whoever looks and in whatever order", () => {
  issued("1", "cred.u.r", "main bob");
  row("1", "cred.u.r");
  row("2", "cred.u.r", "cred.u.r");
  row("3", "cred.u.r");
  expect(auditIssued(folder).without).toEqual([]);
});

test("W131L.01 where the broker was gone nothing is known: that is counted, and no finding", () => {
  issued("1", "a#0", "main alice");
  expect(auditIssued(folder)).toEqual({ without: [], issued: 1, unasked: 1 });
});

test("other files of the run are no part of it", () => {
  appendFileSync(join(folder, "1-auth.txt"), "natkey.UA is printed\n");
  expect(auditIssued(folder)).toEqual({ without: [], issued: 0, unasked: 0 });
});
