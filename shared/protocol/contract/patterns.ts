/**
 * Patterns of schemas, matched in linear time.
 *
 * A schema's pattern is ECMA-262 with the flag `u`, and JavaScript's own engine can take for ever on one
 * such as `^(a+)+$`. Whether a pattern can is hard to tell from its looks, so none is told: every pattern
 * runs on an automaton (RE2), whose time is bounded by pattern size times text length. What an automaton
 * can't do, lookaround and backreferences, is refused, and so is a repetition of more than 1000.
 *
 * Invariants
 * 1. An admitted pattern means what ECMA-262 says. Where RE2 reads the same text otherwise (`.`, `\s`, a
 *    bracket inside a class, `\b` inside a class, code units, names of groups) it is rewritten first.
 * 2. An automaton keeps at most `patternStates` bytes; beyond that it goes on without keeping.
 */
import { RE2Set } from "re2js";
import { SchemaLimit, contractInvalid } from "./limits.ts";
import { toRe2 } from "./re2-syntax.ts";

export type BoundedPattern = {
  test(text: string): boolean;
  /** Instructions of the program: one match takes at most so many steps for each character. */
  readonly size: number;
};

/** Refuses with `contract-invalid` what is no pattern, or can't be bounded. */
export function compilePattern(source: string): BoundedPattern {
  if (source.length > SchemaLimit.patternLength) {
    throw unbounded(source, `is longer than ${SchemaLimit.patternLength} characters`);
  }
  checkSyntax(source);
  const automaton = new RE2Set(RE2Set.UNANCHORED, 0, SchemaLimit.patternStates);
  try {
    automaton.add(toRe2(source));
    automaton.compile();
  } catch (thrown) {
    throw unbounded(source, "can't be matched in bounded time", thrown);
  }
  const size = automaton.prog.numInst();
  if (size > SchemaLimit.patternProgram) throw unbounded(source, "repeats too much");
  return { size, test: (text) => automaton.match(text).length > 0 };
}

/** The flag `u` makes the syntax strict; compiling runs nothing. */
function checkSyntax(source: string): void {
  try {
    void new RegExp(source, "u");
  } catch (thrown) {
    throw unbounded(source, "is no regular expression of ECMA-262", thrown);
  }
}

function unbounded(source: string, what: string, cause?: unknown) {
  return contractInvalid(
    `the pattern ${JSON.stringify(source.slice(0, 80))} ${what}`,
    "write it without lookaround, backreferences and repetitions of more than 1000",
    cause,
  );
}
