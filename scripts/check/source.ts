/**
 * Reading TypeScript for the checkers: a real parse, so that comments, nested templates and
 * regular expressions are told apart by a grammar and not by guessing.
 */
import { parseSync } from "vite";

export type SyntaxNode = { readonly type: string; readonly start: number; readonly [field: string]: unknown };

export type Source = { readonly program: SyntaxNode; readonly lineOf: (node: SyntaxNode) => number };

export const SOURCE_FILE = /\.[mc]?[jt]s$/;

/** Stands for `${…}` in the text of a template: no source text holds it. */
export const HOLE = "\0";

export function parseSource(file: string, text: string): Source {
  const { program, errors } = parseSync(file, text);
  const [error] = errors;
  if (error !== undefined) throw new Error(`${file} does not parse: ${error.message}`);
  if (!isNode(program)) throw new Error(`${file} does not parse`);
  return { program, lineOf: (node) => text.slice(0, node.start).split("\n").length };
}

export function isNode(value: unknown): value is SyntaxNode {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** Every node below and including `node`, in source order. `enter` returning false skips what is below. */
export function* walk(node: SyntaxNode, enter: (node: SyntaxNode) => boolean = () => true): Generator<SyntaxNode> {
  if (!enter(node)) return;
  yield node;
  for (const field of Object.values(node)) {
    for (const child of Array.isArray(field) ? field : [field]) {
      if (isNode(child)) yield* walk(child, enter);
    }
  }
}

/** The text of a string, a template (holes as `HOLE`) or a regular expression (without `\`). */
export function literalText(node: SyntaxNode): string | undefined {
  if (node.type === "TemplateLiteral" || node.type === "TSTemplateLiteralType") {
    const quasis = Array.isArray(node["quasis"]) ? node["quasis"].filter(isNode) : [];
    return quasis.map(cookedText).join(HOLE);
  }
  if (node.type !== "Literal") return undefined;
  if (typeof node["value"] === "string") return node["value"];
  return "regex" in node && typeof node["raw"] === "string" ? node["raw"].replaceAll("\\", "") : undefined;
}

function cookedText(quasi: SyntaxNode): string {
  const value = quasi["value"];
  if (typeof value !== "object" || value === null || !("cooked" in value)) return "";
  return typeof value.cooked === "string" ? value.cooked : "";
}

export type Import = {
  /** Undefined where the specifier is computed. */
  readonly specifier: string | undefined;
  /** The imported names; undefined for everything (`* as x`, `export *`, a dynamic or bare import). */
  readonly names: readonly string[] | undefined;
  readonly line: number;
};

const IMPORTING: ReadonlySet<string> = new Set([
  "ImportDeclaration",
  "ExportNamedDeclaration",
  "ExportAllDeclaration",
  "ImportExpression",
  "TSImportType",
]);

/** Every import of a file: static, type-only, re-export, dynamic and `import("…")` types alike. */
export function importsOf(source: Source): Import[] {
  const found: Import[] = [];
  for (const node of walk(source.program)) {
    if (!IMPORTING.has(node.type)) continue;
    const from = node["source"];
    if (!isNode(from)) continue; // `export { local }` imports nothing
    found.push({ specifier: literalText(from), names: importedNames(node), line: source.lineOf(node) });
  }
  return found;
}

function importedNames(node: SyntaxNode): string[] | undefined {
  const specifiers = Array.isArray(node["specifiers"]) ? node["specifiers"].filter(isNode) : [];
  const names = specifiers.map((specifier) => specifier["imported"] ?? specifier["local"]);
  const plain = specifiers.every(({ type }) => type === "ImportSpecifier" || type === "ExportSpecifier");
  if (!plain || names.length === 0) return undefined;
  return names.map((name) => (isNode(name) ? String(name["name"] ?? name["value"]) : ""));
}
