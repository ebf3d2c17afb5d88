/** The files that `npm run generate` makes are the ones that are checked in. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { PROFILES } from "../../shared/grants/matrix.ts";
import { EXAMPLE_HOLDERS } from "../../scripts/generate/example-holders.ts";
import { generateConfiguration } from "../../scripts/generate/configuration.ts";
import { type Generator, staleFiles, writeFiles } from "../../scripts/generate/generated.ts";
import { GENERATORS } from "../../scripts/generate/all.ts";
import { duration, table } from "../../scripts/generate/markdown.ts";
import { generateProfiles } from "../../scripts/generate/profiles.ts";
import { generateSchemas } from "../../scripts/generate/schemas.ts";

const ROOT = join(import.meta.dirname, "..", "..");

describe("W5.08 W9.03 PD.05 every generated file is current (npm run generate)", () => {
  test.each(Object.entries(GENERATORS))("%s", async (_name, generator) => {
    expect(await staleFiles(ROOT, generator)).toEqual([]);
  });

  test("W5.08 messages are draft-07, all others 2020-12 (H58)", () => {
    const drafts = generateSchemas().map(({ file, text }) => [file, (JSON.parse(text) as { $schema: string }).$schema]);
    expect(drafts.filter(([, draft]) => draft?.includes("draft-07"))).toEqual([
      ["docs/schema/message.json", "http://json-schema.org/draft-07/schema#"],
    ]);
    expect(drafts.filter(([, draft]) => draft?.includes("2020-12"))).toHaveLength(drafts.length - 1);
  });

  test("W9.03 the page of profiles names every profile, built or not, and every row of it", () => {
    const page = generateProfiles()[0]?.text ?? "";
    const missing = Object.keys(PROFILES).filter((name) => !page.includes(`\`${name}\``));
    expect(missing).toEqual([]);
    const rows = page.split("\n").filter((line) => /^\| (front|store|auth|system) \|/.test(line));
    const expected = Object.entries(EXAMPLE_HOLDERS).flatMap(([name, scope]) => {
      const profile = PROFILES[name as keyof typeof EXAMPLE_HOLDERS];
      return (profile.rows as (scope: unknown) => unknown[])(scope);
    });
    expect(rows).toHaveLength(expected.length);
  });

  test("the page of settings explains each variable of each daemon", () => {
    const page = generateConfiguration()[0]?.text ?? "";
    for (const name of [
      "COTAL_STATE",
      "NO_COLOR",
      "NATS_SERVER_BIN",
      "COTAL_SERVERS",
      "COTAL_LOG_LEVEL",
      "COTAL_DRAIN_MS",
    ]) {
      expect(page).toContain(`| \`${name}\` |`);
    }
    expect(page).not.toMatch(/undefined|\[object|NaN/);
  });
});

describe("a generator that is out of date is seen", () => {
  function folder(): string {
    const path = mkdtempSync(join(tmpdir(), "cotal-generate-"));
    onTestFinished(() => rmSync(path, { recursive: true }));
    return path;
  }

  const generator: Generator = { make: () => [{ file: "out/a.txt", text: "new\n" }], folder: "out" };

  test("a missing file, another text, and a leftover", async () => {
    const root = folder();
    expect(await staleFiles(root, generator)).toEqual([{ file: "out/a.txt", why: "is missing" }]);
    mkdirSync(join(root, "out"));
    writeFileSync(join(root, "out/a.txt"), "old\n");
    writeFileSync(join(root, "out/b.txt"), "");
    expect((await staleFiles(root, generator)).map(({ file }) => file)).toEqual(["out/a.txt", "out/b.txt"]);
    expect(await writeFiles(root, generator)).toEqual(["out/a.txt"]);
    expect(readFileSync(join(root, "out/a.txt"), "utf8")).toBe("new\n");
    expect(await staleFiles(root, generator)).toEqual([]);
  });

  test("a table escapes its own separator, and a life is told in whole units", () => {
    expect(table(["a"], [["x|y"]])).toBe("| a |\n| --- |\n| x\\|y |\n");
    expect([300, 3600, 86_400, 2_592_000, 61].map(duration)).toEqual([
      "5 minutes",
      "1 hour",
      "1 day",
      "30 days",
      "61 seconds",
    ]);
  });
});
