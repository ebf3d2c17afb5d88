/**
 * The audit of what was issued (§13.1), over a real auth service: what the broker has let in is known without asking who let it
 * in, each has its row, and one whose row is not there is found.
 */
import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { auditIssued } from "../../scripts/test/issued.ts";
import { rowPage } from "../../shared/broker/reads.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type IssuedAudit, auditIssues } from "../support/issued-audit.ts";
import { put } from "../support/raw-jetstream.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let auth: AuthService;
let folder: string;

beforeAll(async () => {
  space = await startSpace({ auth: "user", delivery: false });
  auth = await startAuthService(space);
  folder = mkdtempSync(join(tmpdir(), "cotal-audit-"));
}, 60_000);
afterAll(async () => {
  await auth.stop();
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

const watching = (): Promise<IssuedAudit> =>
  auditIssues(space.state, space.url, "main", (ending, lines) => appendFileSync(join(folder, `1${ending}`), lines));

/** Somebody signs in, and connects this often under one name. */
async function comes(audit: IssuedAudit, actor: string, times: number, nonce: string): Promise<void> {
  const before = audit.seen();
  const answer = await auth.signIn(actor);
  audit.bearer(answer.bearer);
  for (let at = 0; at < times; at += 1) await (await auth.connect(answer, nonce)).close();
  await expect.poll(() => audit.seen() - before).toBe(1 + times);
}

test("W131L.01 bearers and connections are known from outside, and each has its row; evidence that is missing is told by its name", async () => {
  const first = await watching();
  await comes(first, "alice", 3, "a".repeat(26));
  await first.end();
  expect(auditIssued(folder)).toEqual({ without: [], issued: 4, unasked: 0 });

  const second = await watching();
  await comes(second, "bob", 2, "b".repeat(26));
  const store = await space.store();
  const { rows } = await rowPage(store, "cotal_auth_main", { filter: "natkey.>", limit: 100, via: "leader" });
  const [evidence] = rows.filter(({ data }) => new TextDecoder().decode(data).includes("b".repeat(26)));
  const subject = `$KV.cotal_auth_main.${evidence?.key}`;
  await put(store, subject, "", { "KV-Operation": "PURGE" });
  await second.end();
  // Back again: the run that this test belongs to is looked through as well.
  await put(store, subject, new TextDecoder().decode(evidence?.data));
  const { without, issued } = auditIssued(folder);
  expect(issued).toBe(7);
  expect(without).toHaveLength(1);
  expect(without[0]).toContain("b".repeat(26));
}, 60_000);
