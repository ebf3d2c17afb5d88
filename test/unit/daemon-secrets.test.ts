/** Secret files: what is read, and what is refused unread. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { MAX_SECRET_BYTES, inspectSecret } from "../../shared/daemon/secrets.ts";

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
  expect(inspectSecret(path)).toEqual({ ok: true, text: SECRET });
  writeFileSync(path, "rotated");
  expect(inspectSecret(path)).toEqual({ ok: true, text: "rotated" });
});

test("a link to a regular file is followed, as container secrets are mounted", () => {
  const path = file("b", SECRET);
  symlinkSync(path, join(folder, "link"));
  expect(inspectSecret(join(folder, "link"))).toMatchObject({ ok: true, text: SECRET });
});

test("a file that others can read is used, and told", () => {
  const warning = "is open to others (mode 0444); make it 0600";
  expect(inspectSecret(file("c", SECRET, 0o444))).toEqual({ ok: true, text: SECRET, warning });
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
  });

  test("the bound is 64 KiB, to the byte", () => {
    expect(inspectSecret(file("edge", "s".repeat(65_536)))).toMatchObject({ ok: true });
    expect(inspectSecret(file("over", "s".repeat(MAX_SECRET_BYTES + 1))).ok).toBe(false);
  });

  test("a path that is a secret by mistake is not in what is said", () => {
    const seed = `SU${"A".repeat(56)}`;
    expect(JSON.stringify(inspectSecret(seed))).not.toContain(seed);
  });
});
