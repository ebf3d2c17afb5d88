import { describe, expect, test } from "vitest";
import { memoryTree } from "../../scripts/check/tree.ts";
import { checkWords } from "../../scripts/check/words.ts";

const problemsOf = (text: string): readonly string[] => checkWords(memoryTree({ "docs/a.md": text })).problems;

describe("words", () => {
  test.each([
    "see /work/main/README.md",
    'const home = "/root/.cotal";',
    "/root",
    "file:///work/x",
    "open /Users/someone/x",
    "https://registry.npmjs.org/zod",
    "npm config set registry.npmjs.org",
    "http://registry.internal:4873/",
    "//host/:_authToken=x",
  ])("refuse %s", (text) => {
    expect(problemsOf(text)).toHaveLength(1);
  });

  test.each([
    "services/workflow/main.ts and docs/work/notes",
    "join(`${folder}/root`)",
    "./work/x and ../root",
    "/workflows and /rooted",
    "registry.registerMetric(counter)",
    "the registry of kinds",
    "/srv/cotal",
  ])("let %s be", (text) => {
    expect(problemsOf(text)).toEqual([]);
  });

  test("pass over binary files and name the line", () => {
    expect(problemsOf("\0 /work/x")).toEqual([]);
    expect(problemsOf("a\nb /work/x")[0]).toMatch(/^docs\/a\.md:2: /);
  });
});
