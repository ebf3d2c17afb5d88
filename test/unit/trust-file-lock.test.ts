/** The lock of a folder's file: one holder, gone with it however it ends, and nothing left beside the file. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { alone, aloneSync } from "../../shared/trust/file-lock.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";

const CHILD = join(import.meta.dirname, "..", "support", "lock-child.ts");
const held = (): CotalError => new CotalError(ErrorCode.Unavailable, "held");

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-lock-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

test("another process that holds it keeps everybody out, and is gone with its lock when it is killed", async () => {
  const at = folder();
  const path = join(at, "x.lock");
  const child = spawn(process.execPath, ["--expose-gc", CHILD, path], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  await expect(alone({ path, waitMs: 50, held }, () => "in")).rejects.toMatchObject({ message: "held" });
  expect(() => aloneSync({ path, waitMs: 50, held }, () => "in")).toThrow("held");
  const ended = once(child, "close");
  child.kill("SIGKILL");
  await ended;
  expect(aloneSync({ path, waitMs: 0, held }, () => "in")).toBe("in");
  expect(readdirSync(at)).toEqual(["x.lock"]);
  expect([readFileSync(path, "utf8"), statSync(path).mode & 0o777]).toEqual(["", 0o600]);
});

test("two of one process exclude each other, who waits comes next, and what throws lets go", async () => {
  const path = join(folder(), "below", "x.lock");
  const order: string[] = [];
  let end: () => void = () => undefined;
  const first = alone({ path, waitMs: 60_000, held }, async () => {
    await new Promise<void>((resolve) => (end = resolve));
    order.push("first");
    throw new TypeError("broken");
  });
  const failed = first.then(
    () => "it ended",
    (thrown: unknown) => String(thrown),
  );
  expect(() => aloneSync({ path, waitMs: 0, held }, () => "in")).toThrow("held");
  const second = alone({ path, waitMs: 60_000, held }, () => order.push("second"));
  end();
  expect(await failed).toContain("broken");
  await second;
  expect(order).toEqual(["first", "second"]);
});

test("what can't be locked is a refusal that says so, and nothing runs", () => {
  const at = folder();
  writeFileSync(join(at, "file"), "");
  for (const path of [at, join(at, "file", "x.lock")]) {
    expect(() => aloneSync({ path, waitMs: 0, held }, () => "in")).toThrow(/can't be locked/);
  }
});
