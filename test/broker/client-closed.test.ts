/** What a session says once it is closed: a refusal of ours, with advice, and never a library's own error. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../shared/client/session.ts";
import type { Session } from "../../shared/client/session-types.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const folder = mkdtempSync(join(tmpdir(), "cotal-closed-"));
let space: TestSpace;
let session: Session;
beforeAll(async () => {
  space = await startSpace();
  const file = join(folder, "a.creds");
  writeFileSync(file, (await space.mint({ actor: "a", subscribe: ["general"], publish: ["general"] })).text);
  session = await connect({ servers: [space.url], space: "main", credentials: { kind: "static", file } });
  await session.drain();
});
afterAll(async () => {
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

test.each<[string, () => Promise<unknown>]>([
  ["send", () => session.send("general", "x")],
  ["join", () => session.join("general")],
  ["history", () => session.history("general", {})],
  ["roster", () => session.roster()],
])("%s is unavailable, and nothing was sent", async (_what, ask) => {
  expect(await failure(ask())).toMatchObject({ code: "unavailable", outcome: "not-executed" });
});
