/**
 * A vitest reporter that counts and writes the counts to the file named in COTAL_TEST_TALLY.
 *
 * Vitest's own summary counts tests only. Here everything that went wrong counts: a test that
 * never ended, a hook or a file that threw, an error nobody handled.
 */
import { writeFileSync } from "node:fs";
import { type Reporter, type TestModule } from "vitest/node";
import { type Reported, type Tally, add } from "./tally.ts";

export const TALLY_FILE = "COTAL_TEST_TALLY";

export default class TallyReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    const file = process.env[TALLY_FILE];
    if (file === undefined) throw new Error(`${TALLY_FILE} is not set; run npm test`);
    const files = modules.map((module) => ({ file: module.moduleId, tally: tallyOf(module) }));
    const whole = files.map(({ tally }) => tally).reduce(add, { passed: 0, failed: unhandled.length, skipped: 0 });
    const reported: Reported = { ...whole, failing: files.filter(({ tally }) => tally.failed > 0) };
    writeFileSync(file, JSON.stringify(reported));
  }
}

function tallyOf(module: TestModule): Tally {
  const tests = [...module.children.allTests()].map((test) => test.result().state);
  const count = (state: string): number => tests.filter((found) => found === state).length;
  const thrown = [module, ...module.children.allSuites()].filter((suite) => suite.errors().length > 0).length;
  const failed = count("failed") + count("pending") + thrown;
  // A file can fail without saying where: it must not vanish from the count.
  return { passed: count("passed"), failed: failed || (module.ok() ? 0 : 1), skipped: count("skipped") };
}
