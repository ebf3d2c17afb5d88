/** `npm test` itself, run on small projects of its own: the last line tells what really happened. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { longReport } from "../../scripts/test/report.ts";
import { parseReported, settle, tallyLine } from "../../scripts/test/tally.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function project(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "cotal-scripts-test-"));
  folders.push(folder);
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  const config = `export default { test: { include: ["test/**/*.test.ts"], pool: "forks", maxWorkers: 1 } };`;
  const head = `import { beforeAll, describe, expect, test } from "vitest";\n`;
  const all = { "package.json": `{"type":"module"}`, "vitest.config.ts": config, ...files };
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), name.endsWith(".test.ts") ? head + text : text);
  }
  return folder;
}

function run(
  folder: string,
  ...args: string[]
): { readonly last: string | undefined; readonly exitCode: number | null; readonly text: string } {
  const { stdout, status } = spawnSync(process.execPath, [join(ROOT, "scripts", "test.ts"), ...args], {
    cwd: folder,
    encoding: "utf8",
    // This process is a worker of vitest; the child must not take itself for one.
    env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(?:VITEST|NODE_V8_COVERAGE)/.test(name))),
  });
  return { last: stdout.trimEnd().split("\n").at(-1), exitCode: status, text: stdout };
}

describe("npm test", () => {
  test("counts what passed and what was skipped", () => {
    const folder = project({ "test/a.test.ts": `test("a", () => {}); test("b", () => {}); test.skip("c", () => {});` });
    expect(run(folder)).toMatchObject({ last: "2 passed, 0 failed, 1 skipped", exitCode: 0 });
  });

  test.each([
    ["a failed test", `test("a", () => { expect(1).toBe(2); });`],
    ["a file that doesn't load", `import "./gone.ts";`],
    ["a hook that throws", `describe("d", () => { beforeAll(() => { throw new Error("x"); }); });`],
    ["a file without a test", `export {};`],
    ["an error nobody handles", `test.skip("a", () => {}); void Promise.reject(new Error("x"));`],
    ["a worker that dies", `process.kill(process.pid, "SIGKILL");`],
  ])("counts %s", (_what, text) => {
    const { last, exitCode } = run(project({ "test/bad.test.ts": text, "test/good.test.ts": `test("a", () => {});` }));
    expect(last).toMatch(/^1 passed, [1-9]\d* failed(?:, \d+ skipped)?$/);
    expect(exitCode).toBe(1);
  });

  test("with --again, what passes the second time is counted and named; what fails twice has failed", () => {
    const once = `import { existsSync, writeFileSync } from "node:fs";
      test("a", () => { const had = existsSync("mark"); writeFileSync("mark", ""); expect(had).toBe(true); });
      test("b", () => {});`;
    const folder = project({ "test/once.test.ts": once });
    expect(run(folder)).toMatchObject({ last: "1 passed, 1 failed", exitCode: 1 });
    rmSync(join(folder, "mark"));
    const again = run(folder, "--again");
    expect(again).toMatchObject({ last: "2 passed, 0 failed", exitCode: 0 });
    expect(again.text).toContain("PASSED ONLY THE SECOND TIME, ALONE: test/once.test.ts");
    const never = project({ "test/never.test.ts": `test("a", () => { expect(1).toBe(2); });` });
    expect(run(never, "--again")).toMatchObject({ last: "0 passed, 1 failed", exitCode: 1 });
  });

  test("with --again, seven files that fail are not run again", () => {
    const bad = `test("a", () => { expect(1).toBe(2); });`;
    const folder = project(Object.fromEntries(Array.from({ length: 7 }, (_, n) => [`test/bad-${n}.test.ts`, bad])));
    const { text, ...end } = run(folder, "--again");
    expect(end).toEqual({ last: "0 passed, 7 failed", exitCode: 1 });
    expect(text).not.toContain("once more");
  });

  test("is a failure when no test ran", () => {
    const folder = project({ "test/a.test.ts": `test("a", () => {});` });
    expect(run(folder, "test/other.test.ts")).toMatchObject({ last: "0 passed, 0 failed", exitCode: 1 });
  });

  test("is a failure when vitest itself cannot start", () => {
    const folder = project({ "vitest.config.ts": `throw new Error("x");` });
    expect(run(folder)).toMatchObject({ last: "0 passed, 1 failed", exitCode: 1 });
  });

  test("takes file filters", () => {
    const folder = project({ "test/a.test.ts": `test("a", () => {});`, "test/b.test.ts": `test("b", () => {});` });
    expect(run(folder, "test/b.test.ts")).toMatchObject({ last: "1 passed, 0 failed", exitCode: 0 });
  });

  test("runs test/long only with --long, and reports a complete long run", () => {
    const folder = project({ "test/a.test.ts": `test("a", () => {});`, "test/long/b.test.ts": `test("b", () => {});` });
    mkdirSync(join(folder, "docs"));
    const report = join(folder, "docs", "test-long.md");
    expect(run(folder).last).toBe("1 passed, 0 failed");
    expect(run(folder, "--long", "test/long/b.test.ts").last).toBe("1 passed, 0 failed");
    expect(existsSync(report)).toBe(false);
    expect(run(folder, "--long")).toMatchObject({ last: "2 passed, 0 failed", exitCode: 0 });
    expect(readFileSync(report, "utf8")).toContain("| result | 2 passed, 0 failed |");
  });
});

describe("the tally", () => {
  test("adds a failure for an end that the counts don't explain", () => {
    const good = { passed: 2, failed: 0, skipped: 0 };
    const bad = { passed: 2, failed: 1, skipped: 0 };
    expect(settle(good, 0)).toEqual(good);
    expect(settle(good, 1)).toEqual(bad);
    expect(settle(good, null)).toEqual(bad);
    expect(settle(bad, 1)).toEqual(bad);
    expect(settle(undefined, 0)).toEqual({ passed: 0, failed: 1, skipped: 0 });
  });

  test("is read back as it was written, and nothing else is", () => {
    const tally = { passed: 1, failed: 2, skipped: 3, failing: [] };
    expect(parseReported(JSON.stringify(tally))).toEqual(tally);
    expect(() => parseReported(`{"passed":1,"failed":"0","skipped":0,"failing":[]}`)).toThrow(/failed/);
    expect(() => parseReported("1")).toThrow("not a tally");
  });

  test("names skipped tests only where there are any", () => {
    expect(tallyLine({ passed: 1, failed: 0, skipped: 0 })).toBe("1 passed, 0 failed");
    expect(tallyLine({ passed: 1, failed: 0, skipped: 2 })).toBe("1 passed, 0 failed, 2 skipped");
  });

  test("makes a report with commit, date, counts and duration", () => {
    const tally = { passed: 9, failed: 0, skipped: 1 };
    const text = longReport({ commit: "abc", date: new Date(0), seconds: 125.2, tally });
    for (const part of ["abc", "1970-01-01T00:00:00.000Z", "9 passed, 0 failed, 1 skipped", "2 min 5 s"]) {
      expect(text).toContain(part);
    }
  });
});
