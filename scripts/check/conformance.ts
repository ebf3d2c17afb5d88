/**
 * docs/conformance.md says which rule is held by which test. This keeps it true.
 *
 * A row: `| id | what it asks | part owed now | held by | what remains |`.
 *
 * Invariants
 * 1. Every id of docs/owed.json has a row, and no id has two.
 * 2. A row is held: a test title carries its id, and where the row names test files, one of those.
 *    Or it says `not held: <reason>`; a `—` in its place takes the last column as the reason.
 * 3. A file that a row names exists.
 */
import { RULE_ID, titledRules } from "./titles.ts";
import { type Finding, type Tree } from "./tree.ts";

const TABLE = "docs/conformance.md";
const OWED = "docs/owed.json";
const COLUMNS = 5;
const FILE_NAME = /(?:[\w.-]+\/)+[\w.-]+\.[a-z]+/g;

type Row = { readonly id: string; readonly line: number; readonly cells: readonly string[] };

export function checkConformance(tree: Tree): Finding {
  const missing = [TABLE, OWED].filter((file) => !tree.files.includes(file));
  if (missing.length > 0) return { problems: missing.map((file) => `${file} is missing`) };

  const rows = rowsOf(tree.read(TABLE));
  const owed = owedIds(tree.read(OWED));
  const titled = titledRules(tree);
  const files = new Set(tree.files);
  const problems: string[] = [];
  let notHeld = 0;

  const seen = new Set<string>();
  for (const row of rows) {
    const at = `${TABLE}:${row.line}: ${row.id}`;
    if (seen.has(row.id)) problems.push(`${at} has two rows`);
    seen.add(row.id);
    if (row.cells.length !== COLUMNS) {
      problems.push(`${at} has ${row.cells.length} columns instead of ${COLUMNS}`);
      continue;
    }
    const verdict = judge(row, titled, files);
    if (verdict.notHeld) notHeld += 1;
    problems.push(...verdict.problems.map((problem) => `${at} ${problem}`));
  }
  problems.push(...owed.filter((id) => !seen.has(id)).map((id) => `${TABLE}: ${id} is owed and has no row`));
  return { problems, note: `${rows.length} rules, ${notHeld} not held` };
}

function judge(
  row: Row,
  titled: ReadonlyMap<string, ReadonlySet<string>>,
  files: ReadonlySet<string>,
): { readonly notHeld: boolean; readonly problems: readonly string[] } {
  const heldBy = row.cells[3] ?? "";
  const reason = /^(?:—\s*)?not held:\s*(.*)$/i.exec(heldBy)?.[1] ?? (heldBy === "—" ? row.cells[4] : undefined);
  if (reason !== undefined) {
    return { notHeld: true, problems: /\w/.test(reason) ? [] : ["is not held and says no reason"] };
  }
  const named = heldBy.match(FILE_NAME) ?? [];
  const problems = named.filter((file) => !files.has(file)).map((file) => `is held by ${file}, which does not exist`);
  const carriers = titled.get(row.id) ?? new Set<string>();
  const tests = named.filter((file) => file.endsWith(".test.ts"));
  if (carriers.size === 0) problems.push("is in no test title; write the test or say `not held: <reason>`");
  else if (tests.length > 0 && !tests.some((file) => carriers.has(file))) {
    problems.push(`is in no title of ${tests.join(", ")}, but in ${[...carriers].join(", ")}`);
  }
  return { notHeld: false, problems };
}

function rowsOf(text: string): Row[] {
  const rows: Row[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (!line.startsWith("|")) continue;
    // A cell may hold `\|`.
    const cells = line
      .replace(/^\||\|\s*$/g, "")
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim());
    const id = cells[0]?.match(RULE_ID)?.[0];
    if (id !== undefined && id === cells[0]) rows.push({ id, line: index + 1, cells });
  }
  return rows;
}

function owedIds(text: string): string[] {
  const ids: unknown = JSON.parse(text);
  if (!Array.isArray(ids) || !ids.every((id) => typeof id === "string"))
    throw new Error(`${OWED} is not a list of ids`);
  return ids;
}
