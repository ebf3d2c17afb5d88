/** The secret of a managed agent: where it may be, and that nothing says what it is. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { agentSecret } from "../../shared/client/agent-secret.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { refusal } from "../support/refusal.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cotal-secret-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const written = (name: string, content: string): string => {
  const path = join(folder, name);
  writeFileSync(path, content, { mode: 0o600 });
  return path;
};

describe("W10.33 an agent's secret", () => {
  test("as it stands, or from its file, without the line end; a file that was replaced is read again", () => {
    expect(agentSecret({ secret: "open sesame" })).toBe("open sesame");
    const secretFile = written("one", "first\n");
    expect(agentSecret({ secretFile })).toBe("first");
    written("one", "second\r\n");
    expect(agentSecret({ secretFile })).toBe("second");
    expect(agentSecret({ secretFile: written("long", `${"x".repeat(512)}\n`) })).toHaveLength(512);
  });

  test("what is no secret is refused before anything is sent, and not repeated", () => {
    const fifo = join(folder, "fifo");
    execFileSync("mkfifo", [fifo]);
    mkdirSync(join(folder, "directory"));
    const wrong = [
      { secret: "" },
      { secret: "x".repeat(513) },
      { secretFile: written("empty", "\n") },
      { secretFile: written("large", "x".repeat(100_000)) },
      { secretFile: join(folder, "missing") },
      { secretFile: join(folder, "directory") },
      { secretFile: fifo },
      { secretFile: "/dev/zero" },
    ];
    for (const from of wrong) {
      const error = refusal(() => agentSecret(from));
      expect(error).toMatchObject({ code: ErrorCode.FailedPrecondition, outcome: "not-executed" });
      expect(`${error.message} ${error.next}`).not.toContain("xxxx");
    }
  });
});
