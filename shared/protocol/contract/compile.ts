/**
 * A closure of schemas as a function, by Ajv, within the budgets of supplement A.
 *
 * Invariants
 * 1. Nothing is fetched and nothing is shared: each closure has an Ajv of its own, which holds the
 *    closure's artifacts and no other, not even the meta-schemas.
 * 2. Data is judged and never changed: no defaults, no coercion.
 * 3. Only members that a value has itself count: `required: ["toString"]` is not met by every object.
 * 4. Every schema that is judged spends before the work that follows, by its own weight and the size of
 *    the value; so neither a fan of references nor a large value runs on unseen.
 * 5. The verdict that a budget is used up is taken twice: a pause of the collector, or the first run of
 *    new code, refuses nobody.
 */
import { Ajv2020, type ErrorObject, type KeywordCxt, _ } from "ajv/dist/2020.js";
import { type Json, MAX_DEPTH, isBounded } from "../base/canonical.ts";
import { CotalError } from "../base/errors.ts";
import { type SchemaClosure } from "./closure.ts";
import { SchemaLimit, contractInvalid } from "./limits.ts";
import { SPEND, meteredSchema } from "./metered-schema.ts";
import { type CpuClock, type Meter, OverBudget, createMeter } from "./meter.ts";
import { type BoundedPattern, compilePattern } from "./patterns.ts";
import { PLAIN_KEYWORDS } from "./plain-keywords.ts";

/** What is wrong with a value, and where: a JSON pointer, and words without the value itself. */
export type Problem = { readonly path: string; readonly message: string };

export type CompiledSchema = {
  /**
   * The first problems of a JSON value, none if it is valid. An absent value counts as `null` (supplement A). Throws `contract-invalid` if judging it goes over the budget.
   */
  check(value: unknown): readonly Problem[];
  /** Bytes of memory it may take, estimated. */
  readonly weight: number;
};

/** Units between two readings of the clock: some 50 µs of work. */
const INTERVAL = 512;
/** Characters, or steps of a pattern, that cost one unit. */
const STRING_SHIFT = 5;
const STEP_SHIFT = 3;

const MAX_PROBLEMS = 8;
const MAX_PATH = 200;
/** Generated code takes some ten times its schema. */
const CODE_PER_BYTE = 16;
const CODE_BASE = 16 * 1024;

export function compileClosure(closure: SchemaClosure, cpuMs: CpuClock): CompiledSchema {
  const meter = createMeter(cpuMs, INTERVAL);
  // Each schema costs Ajv tens of microseconds, so here the clock is read for each.
  const compiling = createMeter(cpuMs, 1);
  const { isValid, takeErrors, patterns } = withinBudget("to compile", SchemaLimit.compileMs, (budget) => {
    compiling.begin(budget);
    compiling.spend(1);
    meter.begin(budget);
    const made = build(closure, compiling, meter);
    // What runs first is compiled by the engine; it belongs to this budget.
    made.isValid(null);
    compiling.spend(1);
    return made;
  });
  const bytes = [...closure.members.values()].reduce((sum, member) => sum + member.bytes, 0);
  return {
    weight: CODE_BASE + bytes * CODE_PER_BYTE + patterns * SchemaLimit.patternStates,
    check(value = null) {
      if (!isBounded(value)) return [{ path: "", message: `nests deeper than ${MAX_DEPTH}, or holds no JSON number` }];
      const valid = withinBudget("to validate a value", SchemaLimit.validationMs, (budget) => {
        meter.begin(budget);
        return isValid(value);
      });
      const errors = takeErrors();
      return valid ? [] : errors.slice(0, MAX_PROBLEMS).map(problemOf);
    },
  };
}

function build(closure: SchemaClosure, compiling: Meter, running: Meter) {
  const patterns = new Map<string, BoundedPattern>();
  const ajv = new Ajv2020({
    meta: false,
    validateSchema: false,
    addUsedSchema: false,
    strict: false,
    logger: false,
    validateFormats: false,
    ownProperties: true,
    // One function for each schema that is referred to, however often: references can't multiply code.
    inlineRefs: false,
    // Its optimiser and its early exits take time that grows with the square of a schema's width.
    allErrors: true,
    code: { optimize: false, regExp: Object.assign(patternOf, { code: "patternOf" }) },
  });

  function patternOf(source: string) {
    compiling.spend(1);
    const pattern = patterns.get(source) ?? compilePattern(source);
    patterns.set(source, pattern);
    const test = (text: string): boolean => {
      const steps = pattern.size * text.length;
      if (steps > SchemaLimit.patternSteps) throw new OverBudget();
      running.spend(1 + (steps >>> STEP_SHIFT));
      return pattern.test(text);
    };
    return { test, toString: () => source } as unknown as RegExp;
  }

  const spend = (data: unknown, weight: number): void => running.spend(weight + sizeOf(data));
  ajv.addKeyword({
    keyword: SPEND,
    schemaType: "number",
    code(context: KeywordCxt) {
      compiling.spend(1);
      const call = context.gen.scopeValue("func", { ref: spend });
      context.gen.code(_`${call}(${context.data}, ${context.schema as number})`);
    },
  });
  for (const { keyword, type, message, judge } of PLAIN_KEYWORDS) {
    ajv.removeKeyword(keyword);
    ajv.addKeyword({
      keyword,
      ...(type === undefined ? {} : { type }),
      error: { message },
      compile: (held: Json) => judge(held, running),
    });
  }
  for (const { digest, value } of closure.members.values()) ajv.addSchema(meteredSchema(value) as object, digest);
  const validate = ajv.getSchema(closure.root.digest);
  if (validate === undefined) throw contractInvalid("the schema did not compile");
  return {
    isValid: (value: unknown) => validate(value) === true,
    /** They hold parts of the value, so they are not kept. */
    takeErrors: () => {
      const errors = validate.errors ?? [];
      validate.errors = null;
      return errors;
    },
    patterns: patterns.size,
  };
}

/** What it takes to look at a value once, without what lies within. */
function sizeOf(data: unknown): number {
  if (typeof data === "string") return data.length >>> STRING_SHIFT;
  if (typeof data !== "object" || data === null) return 0;
  return Array.isArray(data) ? data.length : Object.keys(data).length;
}

/** Whatever else is thrown in there (the stack's end, say) is the schema's doing as well. */
function withinBudget<T>(what: string, budgetMs: number, run: (budgetMs: number) => T, again = true): T {
  try {
    return run(budgetMs);
  } catch (thrown) {
    if (thrown instanceof CotalError) throw thrown;
    const over = thrown instanceof OverBudget;
    if (over && again) return withinBudget(what, budgetMs, run, false);
    const why = over ? `takes more than ${budgetMs} ms` : "takes more than there is";
    throw contractInvalid(`the schema ${why} ${what}`, "give the command a simpler schema", thrown);
  }
}

function problemOf({ instancePath, keyword, message, params }: ErrorObject): Problem {
  const name: unknown = (params as Record<string, unknown>)["additionalProperty"];
  const which = keyword === "additionalProperties" && typeof name === "string" ? `: ${name.slice(0, 64)}` : "";
  return {
    path: instancePath.slice(0, MAX_PATH),
    message: `${(message ?? "is not valid").slice(0, MAX_PATH)}${which}`,
  };
}
