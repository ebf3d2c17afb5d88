/** The example of the README's kind runs as it stands, in a process of its own. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Sessions, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let sessions: Sessions;
let folder: string;

beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  folder = mkdtempSync(join(tmpdir(), "cotal-example-"));
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("the echo agent answers a direct message and a mention, and leaves when it is told to", async () => {
  const file = join(folder, "echo.creds");
  const echo = await space.mint({ actor: "echo", subscribe: ["general"], publish: ["general"] });
  writeFileSync(file, echo.text, { mode: 0o600 });
  const program = join(import.meta.dirname, "..", "..", "examples", "echo-agent.ts");
  const child = spawn(process.execPath, [program, space.url, file], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  await new Promise((resolve) => child.stdout.once("data", resolve));

  const alice = await sessions.minted({ actor: "alice", subscribe: ["general"], publish: ["general"] });
  await alice.join("general");
  const asked = await alice.dm(`${echo.view.principal.owner}.echo`, "anybody?");
  await alice.send("general", "hello everyone", { mentions: ["echo"] });
  const items = await take(alice, 2);
  expect(items.map(({ kind, text, replyTo }) => ({ kind, text, replyTo }))).toEqual(
    expect.arrayContaining([
      { kind: "dm", text: "you said: anybody?", replyTo: asked.id },
      expect.objectContaining({ kind: "chat", text: "hello, alice" }),
    ]),
  );
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
});
