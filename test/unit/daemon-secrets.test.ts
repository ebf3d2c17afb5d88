/** Secret files: what is read, and what is refused unread. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { MAX_SECRET_BYTES, inspectSecret, readSecret } from "../../shared/daemon/secrets.ts";
import { refusal } from "../support/refusal.ts";

const folder = mkdtempSync(join(tmpdir(), "cotal-secrets-"));
afterAll(() => rmSync(folder, { recursive: true }));

const SECRET = "hunter2hunter2";

function file(name: string, content: string | Uint8Array, mode = 0o600): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}

test("the content is trimmed and read anew each time", () => {
  const path = file("a", `  ${SECRET}\n`);
  expect(readSecret(path)).toBe(SECRET);
  writeFileSync(path, "rotated");
  expect(readSecret(path)).toBe("rotated");
});

test("a link to a regular file is followed, as container secrets are mounted", () => {
  const path = file("b", SECRET);
  symlinkSync(path, join(folder, "link"));
  expect(readSecret(join(folder, "link"))).toBe(SECRET);
});

test("a file that others can read is used, and told", () => {
  const told: string[] = [];
  expect(readSecret(file("c", SECRET, 0o444), (message) => told.push(message))).toBe(SECRET);
  expect(told).toEqual([expect.stringContaining("0444")]);
  expect(told.join()).not.toContain(SECRET);
});

describe("A.02 what is refused says why, and neither content nor path", () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  mkdirSync(join(folder, "dir"));

  test.each<[string, string]>([
    ["nothing there", join(folder, "none")],
    ["a directory", join(folder, "dir")],
    ["a pipe that nobody writes to", pipe],
    ["a device", "/dev/zero"],
    ["an empty file", file("empty", "")],
    ["a file of blanks", file("blank", " \n\t")],
    ["a file past the bound", file("big", SECRET.repeat(10_000))],
    ["a path through a file", join(file("x", SECRET), "y")],
    ["a name that no file can have", `/${"n".repeat(5000)}`],
    ["a name with a NUL", "/tmp/a\u0000b"],
  ])("%s", (_what, path) => {
    const read = inspectSecret(path);
    expect(read.ok).toBe(false);
    expect(JSON.stringify(read)).not.toContain(SECRET);
    expect(JSON.stringify(read)).not.toContain(folder);
    expect(refusal(() => readSecret(path)).code).toBe("failed-precondition");
  });

  test("the bound is 64 KiB, to the byte", () => {
    expect(readSecret(file("edge", "s".repeat(MAX_SECRET_BYTES)))).toHaveLength(65_536);
    expect(inspectSecret(file("over", "s".repeat(MAX_SECRET_BYTES + 1))).ok).toBe(false);
  });

  test("a path that is a secret by mistake is blanked in the error", () => {
    const seed = `SU${"A".repeat(56)}`;
    expect(refusal(() => readSecret(seed)).message).not.toContain(seed);
  });
});
