/** What a killed command left of the files that commands keep is cleared away by the next that writes there. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { holdingLogin } from "../../cli/login-lock.ts";
import { writeLogin } from "../../cli/login-file.ts";
import { keeping } from "../../cli/keeping.ts";

const TMP = ".0123456789ab.tmp";
const OWN = join("spaces", "main");

function place(): { readonly state: string; readonly space: string } {
  const state = mkdtempSync(join(tmpdir(), "cotal-keeping-"));
  onTestFinished(() => rmSync(state, { recursive: true, force: true }));
  return { state, space: "main" };
}

function plant(state: string, ...names: readonly string[]): readonly string[] {
  for (const name of names) {
    mkdirSync(dirname(join(state, OWN, name)), { recursive: true });
    writeFileSync(join(state, OWN, name), "half");
  }
  return names.map((name) => join(OWN, name)).toSorted();
}

const below = (state: string): readonly string[] =>
  readdirSync(state, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".tmp"))
    .toSorted();

const COMMANDS = [
  "login.json",
  "login.lock.0123456789abcdef",
  "agents/alice.creds",
  "agents/bob.uid",
  "agents/pending/00ff.nk",
].map((name) => name + TMP);
/** Of the trust program, of a daemon, of a person. */
const OTHERS = [`sentinel.jwt${TMP}`, `auth/bearer.jwk${TMP}`, "agents/mine.tmp"];

test("A.05 a sign-in that is written clears away what commands left half made, and nothing of others", async () => {
  const at = place();
  plant(at.state, ...COMMANDS);
  const others = plant(at.state, ...OTHERS);
  await holdingLogin(at, async () => writeLogin(at, { v: 1, kind: "dev" }));
  expect(below(at.state)).toEqual(others);
});

test("A.05 nothing is cleared away while a command writes, and who waits too long is told", () => {
  const at = place();
  keeping(at, () => {
    const half = plant(at.state, ...COMMANDS);
    expect(() => keeping(at, () => undefined, 0)).toThrow(/another command writes/);
    expect(below(at.state)).toEqual(half);
  });
  expect(keeping(at, () => "written")).toBe("written");
  expect(below(at.state)).toEqual([]);
});
