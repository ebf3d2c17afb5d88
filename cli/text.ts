/**
 * Text from the wire on its way to a terminal.
 *
 * A message is somebody else's bytes: a control character could move the cursor, recolour, rename
 * the window or answer for the person who reads it; a bidirectional override could make one line
 * read as another. Invariant: nothing of the wire reaches a terminal but through here.
 */
import { stripVTControlCharacters } from "node:util";

/** C0 but for tab and line feed, DEL, C1, line separators, bidi controls, surrogates without a partner. */
const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\p{Cs}]/gu;
const UNSAFE_IN_LINE = new RegExp(`${UNSAFE.source}|[\\t\\n]`, "gu");

/** One line: every control character is shown as an escape. */
export function oneLine(text: string): string {
  return text.replace(UNSAFE_IN_LINE, escapeOf);
}

/** Several lines; each after the first is indented, so that none can pose as a line of ours. */
export function indented(text: string, by: number): string {
  return text.replace(UNSAFE, escapeOf).replaceAll("\n", `\n${" ".repeat(by)}`);
}

const NAMED: ReadonlyMap<string, string> = new Map([
  ["\n", "\\n"],
  ["\t", "\\t"],
  ["\r", "\\r"],
]);

function escapeOf(character: string): string {
  return NAMED.get(character) ?? `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** A colour takes no room. */
const width = (cell: string): number => stripVTControlCharacters(cell).length;

/** Columns padded to the widest cell, two blanks apart; the last column is not padded. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, width(cell));
  }
  return rows.map((row) =>
    row
      .map((cell, index) => (index === row.length - 1 ? cell : cell + " ".repeat((widths[index] ?? 0) - width(cell))))
      .join("  ")
      .trimEnd(),
  );
}
