/** A space that people sign in to is restored into a plane that runs: its daemons take it up, and people sign in again. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Item, type Ran, type TestPlane, endAll, eventually, startPlane, textsOf } from "../support/cli.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 240_000 });

const folder = mkdtempSync(join(tmpdir(), "cotal-backup-user-"));
const backup = join(folder, "backup");
let plane: TestPlane;
let was: Item | undefined;
let restored: Ran;

beforeAll(async () => {
  const first = await startPlane();
  try {
    await first.json("actor", "grant", "alice", "--subscribe", "general");
    await first.json("actor", "grant", "gone", "--subscribe", "general");
    const [alice] = await first.json("whoami", "--as", "alice");
    await first.json("send", "general", "kept", "--as", "bob");
    await first.json("dm", String(alice?.["principal"]), "unread", "--as", "bob");
    await first.json("whoami", "--as", "gone");
    await first.json("actor", "revoke", "gone");
    was = alice;
    await first.json("backup", "main", backup);
  } finally {
    await first.stop();
  }
  plane = await startPlane("--space", "other");
  restored = await plane.run("restore", backup, "--json");
});
afterAll(async () => {
  await plane?.stop();
  endAll();
  rmSync(folder, { recursive: true, force: true });
});

test("A.07 the daemons of a running plane take a restored space up, and cotal doctor finds nothing", () => {
  expect(restored.err + restored.out).toContain('"kind":"restored"');
  expect(restored.items().filter(({ kind }) => kind === "finding")).toEqual([]);
  expect(restored.code).toBe(0);
});

test("A.07 the same person is the same principal in a new lifecycle, and has what was sent to it", async () => {
  const [alice] = await plane.json("whoami", "--as", "alice", "--space", "main");
  expect(alice?.["principal"]).toBe(was?.["principal"]);
  expect(alice?.["uid"]).not.toBe(was?.["uid"]);
  expect(textsOf(await plane.json("history", "general", "--as", "alice", "--space", "main"))).toContain("kept");
  const tail = plane.start("tail", "--as", "alice", "--space", "main", "--json");
  const shown = await eventually(
    () => textsOf(tail.items().filter(({ parts }) => parts !== undefined)),
    (texts) => texts.includes("unread"),
  );
  expect(shown).toContain("unread");
  tail.process.kill("SIGTERM");
  await tail.ended;
});

test("A.07 who was revoked stays revoked", async () => {
  const refused = await plane.run("whoami", "--as", "gone", "--space", "main");
  expect(refused.code).toBe(1);
  expect(refused.err).toContain("revoked");
  const actors = await plane.json("actor", "list", "--space", "main");
  const states = actors.map(({ principal, state }) => [String(principal).split(".")[1], state]);
  expect(states).toEqual(
    expect.arrayContaining([
      ["gone", "revoked"],
      ["alice", "active"],
      ["bob", "active"],
    ]),
  );
});

test("A.07 a backup of an open space is refused with what to do instead", async () => {
  const open = await startPlane("--auth", "open");
  try {
    const refused = await open.run("backup", "main", join(folder, "open"));
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.err).toContain("an open space has no backup of its own");
  } finally {
    await open.stop();
  }
});
