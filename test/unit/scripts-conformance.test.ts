import { describe, expect, test } from "vitest";
import { checkConformance } from "../../scripts/check/conformance.ts";
import { memoryTree } from "../../scripts/check/tree.ts";

const HEAD = "| id | what it asks | part owed now | held by | what remains |\n| --- | --- | --- | --- | --- |\n";
const TEST = "test/unit/a.test.ts";

// Ids here are of no section, so that the real check doesn't take them for titles.
function check(rows: string, tests: string, owed: readonly string[] = []) {
  return checkConformance(
    memoryTree({
      "docs/conformance.md": HEAD + rows,
      "docs/owed.json": JSON.stringify(owed),
      [TEST]: tests,
      "test/unit/b.test.ts": "",
    }),
  );
}

describe("conformance", () => {
  test.each([
    ["test", `test("W99.01 holds", () => {});`],
    ["two ids in one title", `test("W99.02, W99.01 hold", () => {});`],
    ["a template", "test(`W99.01 holds ${name}`, () => {});"],
    ["describe", `describe("W99.01", () => { test("x", () => {}); });`],
    ["each", `test.each([1])("case %i of W99.01", () => {});`],
    ["a table of titles", `for (const title of ["W99.01 holds"]) test(title, () => {});`],
  ])("is held by a title of %s", (_what, tests) => {
    expect(check(`| W99.01 | asks | all | \`${TEST}\` | — |`, tests).problems).toEqual([]);
  });

  test.each([
    ["no test", ""],
    ["a comment", `// test("W99.01 holds", () => {});`],
    ["a skipped test", `test.skip("W99.01 holds", () => {});`],
    ["a test still to do", `it.todo("W99.01 holds");`],
    ["a test in a skipped group", `describe.skip("x", () => { test("W99.01 holds", () => {}); });`],
    ["text that only mentions it", `test("x", () => { log("see W99.01"); });`],
    ["a longer id", `test("W99.011 holds", () => {});`],
  ])("is not held by %s", (_what, tests) => {
    expect(check("| W99.01 | asks | all | tests | — |", tests).problems).toEqual([
      expect.stringContaining("W99.01 is in no test title"),
    ]);
  });

  test("counts what is not held, with its reason", () => {
    const rows = [
      "| W99.01 | asks | all | not held: no second machine | — |",
      "| W99.02 | asks | all | — not held: later | — |",
      "| W99.03 | asks | nothing | — | comes with takes |",
    ];
    expect(check(rows.join("\n"), "")).toEqual({ problems: [], note: "3 rules, 3 not held" });
  });

  test.each(["not held:", "not held: —", "—"])("refuses %s without a reason", (heldBy) => {
    expect(check(`| W99.01 | asks | all | ${heldBy} | — |`, "").problems).toEqual([
      expect.stringContaining("says no reason"),
    ]);
  });

  test("refuses an owed id without a row, and two rows of one id", () => {
    const row = "| W99.01 | asks | all | not held: later | — |";
    expect(check(`${row}\n${row}`, "", ["W99.01", "P99.07"]).problems).toEqual([
      expect.stringMatching(/W99\.01 has two rows/),
      expect.stringMatching(/P99\.07 is owed and has no row/),
    ]);
  });

  test("refuses a file that doesn't exist, and a named test that doesn't carry the id", () => {
    const tests = `test("W99.01 holds", () => {});`;
    expect(check("| W99.01 | asks | all | test/unit/gone.test.ts | — |", tests).problems).toEqual([
      expect.stringContaining("test/unit/gone.test.ts, which does not exist"),
      expect.stringContaining(`but in ${TEST}`),
    ]);
    expect(check("| W99.01 | asks | all | test/unit/b.test.ts | — |", tests).problems).toEqual([
      expect.stringContaining(`but in ${TEST}`),
    ]);
  });

  test("refuses a row of the wrong width, and reads an escaped bar as text", () => {
    expect(check("| W99.01 | asks | all | not held: later |", "").problems[0]).toContain("4 columns instead of 5");
    expect(check("| W99.01 | a \\| b | all | not held: later | — |", "").problems).toEqual([]);
  });

  test("refuses a tree without the table", () => {
    expect(checkConformance(memoryTree({})).problems).toHaveLength(2);
  });
});
