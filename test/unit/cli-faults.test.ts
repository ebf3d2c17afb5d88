/** Faults of the machine as a person reads them, and what is said where nobody said what to do. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { asError } from "../../cli/faults.ts";
import { createOutput } from "../../cli/output.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { keptKey, readKept } from "../../shared/trust/folder.ts";
import { refusal } from "../support/refusal.ts";

/** As `node:fs` throws it. */
const fault = (code: string, path = "/state/x"): Error => Object.assign(new Error(`${code}: x`), { code, path });

describe("what the file system refuses", () => {
  test.each([
    ["EACCES", "permission-denied"],
    ["EPERM", "permission-denied"],
    ["EROFS", "failed-precondition"],
    ["ENOSPC", "resource-exhausted"],
    ["ENOTDIR", "failed-precondition"],
    ["EISDIR", "failed-precondition"],
  ])("A.08: %s names the path and what to do, and is not internal", (system, code) => {
    const error = asError(fault(system));
    expect(error.code).toBe(code);
    expect(error.message).toContain("/state/x");
    expect(error.message).toContain(system);
    expect(error.next).toMatch(/\w/);
  });

  test("a real one: a path below a file", () => {
    let thrown: unknown;
    try {
      readFileSync("/etc/passwd/plane.json");
    } catch (error) {
      thrown = error;
    }
    expect(asError(thrown)).toMatchObject({ code: "failed-precondition" });
  });

  test("an error of ours stays as it is, and a stranger is internal", () => {
    const own = new CotalError(ErrorCode.Conflict, "x");
    expect(asError(own)).toBe(own);
    expect(asError(fault("EWHATEVER")).code).toBe("internal");
    expect(asError(new Error("x")).code).toBe("internal");
  });
});

describe("what to do next, where the error does not say", () => {
  const said = (code: ErrorCode): string => {
    const write = vi.spyOn(process.stdout, "write").mockReturnValue(true);
    onTestFinished(() => write.mockRestore());
    createOutput(true).error(new CotalError(code, "x"));
    return String((JSON.parse(String(write.mock.lastCall?.[0])) as { next: string }).next);
  };

  test("A.08: a doctor is no remedy for a mistyped command", () => {
    expect(said(ErrorCode.BadRequest)).toContain("--help");
    expect(said(ErrorCode.Internal)).toContain("doctor");
  });
});

describe("a damaged file is named, and nothing of it is repeated", () => {
  function file(text: string): string {
    const folder = mkdtempSync(join(tmpdir(), "cotal-damaged-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, "a file");
    writeFileSync(path, text);
    return path;
  }

  test("a credential file", () => {
    const path = file("SUAsecret");
    const error = refusal(() => readCredsFile(path));
    expect([error.code, error.message.includes(path), error.message.includes("SUAsecret")]).toEqual([
      "bad-request",
      true,
      false,
    ]);
    expect(error.next).toMatch(/\w/);
  });

  test("a key", () => {
    const path = file("SUAsecret");
    const error = refusal(() => keptKey(path, "account"));
    expect([error.code, error.message.includes(path), error.cause]).toEqual(["failed-precondition", true, undefined]);
  });

  test("a list", () => {
    const path = file('{"secret');
    const error = refusal(() => readKept(path, (text): unknown => JSON.parse(text)));
    expect([error.code, error.message.includes(path), error.cause]).toEqual(["failed-precondition", true, undefined]);
  });
});
