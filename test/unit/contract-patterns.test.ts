/** Patterns of schemas (supplement A, "bounded patterns"): they mean what ECMA-262 says, in linear time. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import * as grammar from "../../shared/protocol/base/grammar.ts";
import { schemaClosure, type SchemaClosure } from "../../shared/protocol/contract/closure.ts";
import { compilePattern } from "../../shared/protocol/contract/patterns.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { zodSchema } from "../../shared/protocol/contract/zod-schema.ts";
import { refusal } from "../support/refusal.ts";

const refusedPattern = (source: string) => refusal(() => compilePattern(source)).code;
const native = (source: string, text: string) => new RegExp(source, "u").test(text);

/** Far more than any of these takes, and far less than a catastrophe. */
const DEADLINE_MS = 2000;

describe("the same meaning as ECMA-262", () => {
  test.each([
    [".", ["a", "\n", "\r", "\u2028", "\u2029", "\u0085", "😀", ""]],
    ["^.$", ["😀", "ab", "\r"]],
    ["^\\s$", [" ", "\t", "\v", "\f", "\u00a0", "\ufeff", "\u2003", "\u200b", "\u180e", "\u3000", "x"]],
    ["^\\S$", [" ", "\v", "\u00a0", "\ufeff", "\u200b", "😀", "\u2028"]],
    ["^[\\s\\S]$", ["\n", "a", "😀"]],
    ["^[^\\s]$", ["\n", "a", "\u00a0"]],
    ["^[\\Sx ]$", [" ", "a", "\t"]],
    ["^\\w+$", ["aZ_9", "é", "ſ", "-"]],
    ["^\\W$", ["é", "a", "\u017f", "\u212a"]],
    ["^\\d$", ["1", "٣"]],
    ["\\bfoo\\b", ["a foo b", "afoo", "éfoo"]],
    ["a\\Bb", ["ab", "a b"]],
    ["^[\\b]$", ["\b", "b"]],
    ["^[[a:]$", ["[", "a", ":", "]"]],
    ["^[[:alpha:\\]]+$", ["[:]", "alpha", "z"]],
    ["^[]$", ["", "a"]],
    ["^[^]$", ["\n", "a", "", "ab"]],
    ["[]|a", ["a", "b"]],
    ["^\\u{1f600}$", ["😀", "\ud83d"]],
    ["^\\ud83d\\ude00$", ["😀"]],
    ["^[\\ud83d\\ude00-\\ud83d\\ude4f]$", ["😁", "\u{1f650}", "a"]],
    ["^\\u00410$", ["A0", "\u0041"]],
    ["^\\x410$", ["A0"]],
    ["^\\cJ$", ["\n", "J"]],
    ["^\\0$", ["\0", "0"]],
    ["^(?<year>\\d{4})-(?<month>\\d\\d)$", ["2026-01", "202-01"]],
    ["^(?:a|b){2,3}?$", ["ab", "aba", "abab"]],
    ["^\\/\\.\\*\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\$", ["/.*()[]{}|^$\\"]],
    ["^[a\\-z]$", ["-", "m"]],
    ["^[-a]|[a-]$", ["-", "a", "b"]],
    ["^\\p{Lu}\\P{L}$", ["A1", "a1", "É-", "AA"]],
    ["^$", ["", "a", "\n"]],
    ["a$", ["a\n", "ba"]],
    ["^b", ["a\nb", "b"]],
    ["", ["", "x"]],
    ["(a*)*b", ["aab", "c"]],
    ["^é+$", ["éé", "e\u0301"]],
  ])("PA.04: %j", (source, texts) => {
    const pattern = compilePattern(source);
    expect(texts.map((text) => [text, pattern.test(text)])).toEqual(texts.map((text) => [text, native(source, text)]));
  });

  const atoms = fc.oneof(
    fc.constantFrom(
      "a",
      "b",
      ".",
      "\\s",
      "\\S",
      "\\w",
      "\\W",
      "\\d",
      "\\b",
      "^",
      "$",
      "[ab]",
      "[^a]",
      "[\\s-]",
      "[]",
      "[^]",
    ),
    fc.constantFrom(
      "[^\\S]",
      "[[a]",
      "\\u0061",
      "\\u{1f600}",
      "😀",
      "[a-c😀]",
      "\\x62",
      "\\p{L}",
      "(?:)",
      "\\/",
      "\\n",
    ),
  );
  const quantified = (body: fc.Arbitrary<string>) =>
    fc
      .tuple(body, fc.constantFrom("", "", "*", "+", "?", "{2}", "{1,3}", "*?"))
      .map(([piece, many]) => (/^(?:\\b|\^|\$)$/.test(piece) ? piece : `${piece}${many}`));
  const sources = fc.letrec<{ whole: string; group: string; piece: string }>((tie) => ({
    piece: quantified(fc.oneof({ weight: 4, arbitrary: atoms }, { weight: 1, arbitrary: tie("group") })),
    group: tie("whole").map((whole) => `(?:${whole})`),
    whole: fc.oneof(
      { maxDepth: 3 },
      fc.array(quantified(atoms), { minLength: 1, maxLength: 3 }).map((pieces) => pieces.join("")),
      fc.array(tie("piece"), { minLength: 1, maxLength: 3 }).map((pieces) => pieces.join("")),
      fc.tuple(tie("whole"), tie("whole")).map(([a, b]) => `${a}|${b}`),
    ),
  })).whole;
  const texts = fc.string({
    unit: fc.constantFrom("a", "b", "c", " ", "\n", "\u2028", "\u00a0", "1", "_", "😀", "[", "/"),
    maxLength: 6,
  });

  test("PA.04: whatever is admitted matches what JavaScript matches", () => {
    fc.assert(
      fc.property(sources, fc.array(texts, { maxLength: 6 }), (source, tried) => {
        const pattern = compilePattern(source);
        for (const text of tried)
          expect([source, text, pattern.test(text)]).toEqual([source, text, native(source, text)]);
      }),
      { numRuns: 1500 },
    );
  });

  test("PA.04: every token of the wire grammar can stand in a contract", () => {
    const tokens = Object.values(grammar).filter((one) => one instanceof RegExp && one.flags === "");
    const stringTokens = tokens.filter((one): one is RegExp => one instanceof RegExp);
    expect(stringTokens.length).toBeGreaterThan(20);
    for (const { source } of stringTokens) expect(compilePattern(source).size).toBeLessThan(4000);
  });

  test("PA.04: so can the formats that Zod writes as patterns", () => {
    const shapes = [
      z.email(),
      z.uuid(),
      z.ipv4(),
      z.base64(),
      z.base64url(),
      z.iso.datetime(),
      z.iso.date(),
      z.iso.time(),
    ];
    for (const shape of shapes) {
      expect(
        createValidators()
          .of(schemaClosure(zodSchema(shape)))
          .check(1),
      ).toHaveLength(1);
    }
    const uuid = createValidators().of(schemaClosure(zodSchema(z.uuid())));
    expect(uuid.check("0190d2f4-6f4e-7d7a-8c7d-9d1f1f1f1f1f")).toEqual([]);
    expect(uuid.check("0190d2f4-6f4e-7d7a-8c7d-9d1f1f1f1f1")).toHaveLength(1);
  });
});

describe("what is refused", () => {
  test.each([
    ["lookahead", "(?=a)b"],
    ["negative lookahead", "^(?!.*\\.\\.)a$"],
    ["lookbehind", "(?<=a)b"],
    ["negative lookbehind", "(?<!a)b"],
    ["a backreference", "(a)\\1"],
    ["a named backreference", "(?<n>a)\\k<n>"],
    ["a change of flags", "(?i:a)"],
    ["a script", "\\p{Script=Greek}"],
    ["a long name of a property", "\\p{Letter}"],
    ["half a character", "\\ud83d"],
    ["a repetition of more than 1000", "a{1001}"],
    ["a repetition of repetitions that makes more than 1000", "(?:a{100}){11}"],
    ["repetitions whose program is too large", "(?:[ab]{1,500}c){1}[0-9]{900}(?:x|yz){900}"],
    ["what no syntax allows", "a)"],
    ["a bare bracket", "]"],
    ["a bare brace", "x{,3}"],
    ["an escape that says nothing", "\\e"],
    ["flags of another language", "(?i)a"],
    ["a name of another language", "(?P<n>a)"],
    ["a quotation of another language", "\\Qa.b\\E"],
    ["an anchor of another language", "\\Aa\\z"],
    ["a class of another language", "\\C"],
    ["a possessive repetition", "a++"],
    ["an atomic group", "(?>a)"],
    ["a group that is not closed", "(a"],
  ])("PA.04: %s", (_, source) => {
    expect(refusedPattern(source)).toBe("contract-invalid");
    expect(refusal(() => createValidators().of(schemaClosure({ type: "string", pattern: source }))).code).toBe(
      "contract-invalid",
    );
    expect(
      refusal(() => createValidators().of(schemaClosure({ patternProperties: { [source]: { type: "null" } } }))).code,
    ).toBe("contract-invalid");
  });

  test("PA.04: a pattern of 1000 characters is taken, one of 1001 is not", () => {
    expect(compilePattern("a".repeat(1000)).test("a".repeat(1000))).toBe(true);
    expect(refusedPattern("a".repeat(1001))).toBe("contract-invalid");
  });

  test("PA.04: a repetition of 1000 is taken", () => {
    expect(compilePattern("^a{1000}$").test("a".repeat(1000))).toBe(true);
    expect(compilePattern("^a{0,1000}$").test("a".repeat(1001))).toBe(false);
  });
});

describe("catastrophic patterns", () => {
  const evil: readonly (readonly [string, string])[] = [
    ["^(a+)+$", `${"a".repeat(50_000)}!`],
    ["^(a|aa)+$", `${"a".repeat(50_000)}!`],
    ["^(a|a?)+$", `${"a".repeat(50_000)}!`],
    ["^(.*)*$", `${"x".repeat(50_000)}\n`],
    ["^(?:.*a){12}$", `${"a".repeat(20_000)}!`],
    ["^\\s*\\s*\\s*\\s*$", `${" ".repeat(50_000)}!`],
    [
      "^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
      `${"a".repeat(20_000)}!`,
    ],
    ["(x+x+)+y", "x".repeat(50_000)],
    ["^(([a-z])+.)+[A-Z]([a-z])+$", "a".repeat(50_000)],
    ["(?:a?){100}a{100}", `${"a".repeat(99)}b`.repeat(20)],
  ];

  test.each(evil)("PA.04: %s ends at once, with the right answer", (source, text) => {
    const began = performance.now();
    expect(compilePattern(source).test(text)).toBe(false);
    expect(performance.now() - began).toBeLessThan(DEADLINE_MS);
  });

  /** A schema of this pattern; nobody's budget is used up. */
  const patterned = (pattern: string): SchemaClosure => schemaClosure({ type: "string", pattern });

  test("PA.04: a match that could take more than the budget is refused before it is begun", () => {
    const small = createValidators(() => 0).of(patterned("^[a-z]{1,900}$"));
    const { size } = compilePattern("^[a-z]{1,900}$");
    const longest = Math.floor(2_000_000 / size);
    expect(small.check("a".repeat(longest))).toHaveLength(1);
    const error = refusal(() => small.check("a".repeat(longest + 1)));
    expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining("10 ms")]);
  });
});
