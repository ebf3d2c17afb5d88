/** The CLI over a space whose members, or whose state folder, are not what a person expects. */
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const MAIN = join(import.meta.dirname, "..", "..", "cli", "main.ts");

type Ran = { readonly code: number; readonly out: string; readonly err: string };

function cotal(space: TestSpace, state: string, ...args: readonly string[]): Promise<Ran> {
  const line = [MAIN, ...args, "--state", state, "--server", space.url];
  return new Promise((resolve) => {
    execFile(process.execPath, line, (error, out, err) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, out, err });
    });
  });
}

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-hostile-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

test("deprovision with the operator's credential alone is refused before anything began", async () => {
  const space = await startSpace();
  onTestFinished(() => space.stop());
  const agent = await space.mint({ actor: "stays", subscribe: ["general"] });
  const state = folder();
  const part = join("spaces", "main", "operator");
  cpSync(join(space.state, part), join(state, part), { recursive: true });
  const { code, err } = await cotal(space, state, "deprovision", dotForm(agent.view.principal));
  expect([code, err]).toEqual([1, expect.stringContaining("failed-precondition")]);
  const { records } = spaceNames("main").bucket;
  const key = kvKey(records, ledgerKey.head(agent.view.principal));
  const head = await leaderLast(await space.store(), bucketStream(records), key);
  expect(JSON.parse(new TextDecoder().decode(head?.data))).toMatchObject({ state: "active" });
}, 60_000);

test("a member's id with control characters reaches the terminal as an escape", async () => {
  const space = await startSpace({ auth: "open" });
  onTestFinished(() => space.stop());
  const nc = await space.connectOpen();
  const id = "local.\u001b[2J\u001b[Hroot";
  const record = { card: { id, name: "friendly", kind: "agent" }, status: "idle", ts: Date.now() + 60_000 };
  await nc.request(kvKey(spaceNames("main").bucket.presence, id), JSON.stringify(record));
  const { code, out } = await cotal(space, folder(), "who", "--as", "reader");
  expect(code).toBe(0);
  expect(out).not.toContain("\u001b");
}, 60_000);
