/**
 * The rule ids that test titles carry.
 *
 * A title is the first argument of `test`, `it` or `describe`, or a string of a test file that
 * begins with an id (the rows of a table of cases). What is skipped, or still to do, holds nothing.
 */
import { type SyntaxNode, isNode, literalText, parseSource, walk } from "./source.ts";
import { type Tree } from "./tree.ts";

/** The shape of a rule id: `W3.05`, `W136A.01`, `PD.05`, `F1.11`, `A.01`. */
export const RULE_ID = /\b(?:W|P[A-K]|F|S|A)[0-9A-Z]*\.[0-9]{2}\b/g;

const TEST_FILE = /^test\/.*\.test\.ts$/;
const RUNS: ReadonlySet<string> = new Set(["test", "it", "describe"]);
const RUNS_NOT: ReadonlySet<string> = new Set(["skip", "todo"]);

/** Rule id to the test files whose titles carry it. */
export function titledRules(tree: Tree): ReadonlyMap<string, ReadonlySet<string>> {
  const held = new Map<string, Set<string>>();
  for (const file of tree.files) {
    if (!TEST_FILE.test(file)) continue;
    for (const id of idsOf(parseSource(file, tree.read(file)).program)) {
      held.set(id, (held.get(id) ?? new Set()).add(file));
    }
  }
  return held;
}

function* idsOf(program: SyntaxNode): Generator<string> {
  const titles = new Set<SyntaxNode>();
  const runs = (node: SyntaxNode): boolean => {
    const names = calleeNames(node);
    return names === undefined || !names.some((name) => RUNS_NOT.has(name));
  };
  for (const node of walk(program, runs)) {
    const first = calleeNames(node) === undefined ? undefined : firstArgument(node);
    if (first !== undefined) titles.add(first);
    const text = literalText(node);
    if (text === undefined) continue;
    for (const { 0: id, index } of text.matchAll(RULE_ID)) {
      if (titles.has(node) || index === 0) yield id;
    }
  }
}

/** `["test", "each"]` for `test.each(rows)("…")`; undefined for a call that declares no test. */
function calleeNames(node: SyntaxNode): string[] | undefined {
  if (node.type !== "CallExpression") return undefined;
  const names: string[] = [];
  let callee: unknown = node["callee"];
  while (isNode(callee)) {
    if (callee.type === "Identifier") {
      names.push(String(callee["name"]));
      break;
    }
    if (callee.type === "MemberExpression" && isNode(callee["property"]))
      names.push(String(callee["property"]["name"]));
    callee = callee["object"] ?? callee["callee"] ?? callee["tag"];
  }
  return RUNS.has(names.at(-1) ?? "") ? names.toReversed() : undefined;
}

function firstArgument(node: SyntaxNode): SyntaxNode | undefined {
  const first: unknown = Array.isArray(node["arguments"]) ? node["arguments"][0] : undefined;
  return isNode(first) ? first : undefined;
}
