/**
 * Did everything that was issued in the whole run have its row? (§13.1: an unledgered mint is forbidden, and that is
 * auditable by comparing what was issued with the ledger.) Every world of the tests adds the user keys that its brokers
 * let in, and the row that it found for each, to one folder (test/support/issued-audit.ts); here both are compared.
 *
 * Invariants
 * 1. What was issued is known from the broker, never from who issues.
 * 2. A key whose ledger could not be asked, because its broker was gone, is counted and told, and is no finding.
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** Files of one line for each user key that a broker let in: the key, its space, and what it was issued for. */
export const ISSUED = ".issued";
/** Of one line for each of them that was looked up: the key, and the key of its row, or nothing. */
export const ROWS = ".rows";

export type IssuedAudit = {
  /** Issued without a row: the user key, and who had it. */
  readonly without: readonly string[];
  readonly issued: number;
  readonly unasked: number;
};

/** A line is words between single spaces. */
export const lineOf = (...words: readonly string[]): string => `${words.join(" ")}\n`;

export function auditIssued(folder: string): IssuedAudit {
  const lines = (ending: string): [string, string][] =>
    readdirSync(folder)
      .filter((name) => name.endsWith(ending))
      .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").filter(Boolean))
      .map((line) => {
        const at = line.indexOf(" ");
        return at === -1 ? [line, ""] : [line.slice(0, at), line.slice(at + 1)];
      });
  const issued = new Map(lines(ISSUED));
  const rows = new Map<string, string>();
  // A row that was found once was there, whatever a later look says.
  for (const [key, row] of lines(ROWS)) if (!rows.get(key)) rows.set(key, row);
  const without = [...issued].flatMap(([key, whose]) => (rows.get(key) === "" ? [`${key} (${whose})`] : []));
  return { without, issued: issued.size, unasked: [...issued.keys()].filter((key) => !rows.has(key)).length };
}
