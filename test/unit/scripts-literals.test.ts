import { describe, expect, test } from "vitest";
import { checkLiterals } from "../../scripts/check/literals.ts";
import { memoryTree } from "../../scripts/check/tree.ts";

const problemsOf = (text: string, file = "services/x/a.ts"): readonly string[] =>
  checkLiterals(memoryTree({ [file]: text })).problems;

describe("literals", () => {
  test.each([
    "const a = `cotal.${space}.chat.x`;",
    'const a = "cotal.main.chat.general";',
    'const a = "cotal." + space;',
    'const a = "publish to cotal.main.chat.x";',
    'const a = "cotal.*.chat.>";',
    'const a = "cotal.>";',
    'type A = `cotal.${"main"}.chat`;',
    "const a = /^cotal\\.main\\.chat/;",
    'const a = "cotal.json.chat";',
    'const a = "$JS.API.INFO";',
    "const a = `${prefix}$KV.bucket.${key}`;",
    'const a = ["$SYS.ACCOUNT"];',
    'const a = "$O.store.C.x";',
    "const a = /^\\$JS\\.ACK/;",
    'const a = "_INBOX_x.>";',
    "const a = `${1 + 1} ${`_INBOX.${id}`}`;",
  ])("refuse %s", (text) => {
    expect(problemsOf(text)).toHaveLength(1);
  });

  test.each([
    'console.log("run cotal up first");',
    'const a = join(home, ".cotal");',
    'const a = "cotal_metric_names";',
    'const a = "Cotal-Delivery-Limit";',
    'const a = "ai.cotal.part";',
    'const a = "cotal://main";',
    'const a = "Welcome to cotal. It is small.";',
    'const a = ["cotal.json", "cotal.log"];',
    'import { x } from "./cotal.ts";',
    "const price = `$${a}`;",
    'const a = "$JSON";',
    'const a = 1; // "cotal.main.chat.x" and $JS.API',
    '/** `_INBOX` */ const a = "x";',
  ])("let %s be", (text) => {
    expect(problemsOf(text)).toEqual([]);
  });

  test("are free in the protocol and in tests", () => {
    const text = 'const a = "$JS.API.INFO";';
    expect(problemsOf(text, "shared/protocol/base/x.ts")).toEqual([]);
    expect(problemsOf(text, "test/unit/x.test.ts")).toEqual([]);
    expect(problemsOf(text, "scripts/generate.ts")).toHaveLength(1);
    expect(problemsOf(text, "examples/x.ts")).toHaveLength(1);
  });

  test("name the file and the line, also after characters of two units", () => {
    expect(problemsOf('const a = "😀😀";\n\nconst b = "$JS.API";')[0]).toMatch(/^services\/x\/a\.ts:3: /);
  });
});
