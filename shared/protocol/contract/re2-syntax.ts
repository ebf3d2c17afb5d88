/**
 * A regular expression of ECMA-262 (flag `u`), in the spelling that means the same to RE2.
 *
 * A table: at each place the first row that fits takes its piece and says what stands there for RE2. What
 * no row knows is the same in both. The syntax has been checked by the engine of JavaScript before.
 */

/** Inside a class, outside of one, or both. */
type Where = "in" | "out" | "both";
type Rewrite = (piece: string, inClass: boolean) => string;
type Row = readonly [where: Where, piece: RegExp, rewrite: Rewrite];

const SPACES = "\\t-\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}";
const OTHERS =
  "\\x00-\\x08\\x0e-\\x1f!-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}" +
  "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{fefe}\\x{ff00}-\\x{10ffff}";

const codePoint = (point: number) => `\\x{${point.toString(16)}}`;
const fromHex = (digits: string) => codePoint(Number.parseInt(digits, 16));
const same: Rewrite = (piece) => piece;
const classOf =
  (members: string): Rewrite =>
  (_, inClass) =>
    inClass ? members : `[${members}]`;

function refuse(what: string): Rewrite {
  return (piece) => {
    throw new SyntaxError(`${piece}: ${what}`);
  };
}

const ROWS: readonly Row[] = [
  // An empty class matches nothing, its opposite everything; RE2 would take the bracket for a member.
  ["out", /\[\]/y, () => "[^\\x00-\\x{10ffff}]"],
  ["out", /\[\^\]/y, () => "[\\x00-\\x{10ffff}]"],
  ["out", /\./y, () => "[^\\n\\r\\x{2028}\\x{2029}]"],
  ["out", /\(\?:/y, same],
  ["out", /\(\?<[^=!>]+>/y, () => "(?:"],
  ["out", /\(\?/y, refuse("neither lookaround nor a change of flags")],
  ["in", /\[/y, () => "\\["],
  ["in", /\\b/y, () => "\\x08"],

  ["both", /\\u\{[0-9a-fA-F]+\}/y, (piece) => fromHex(piece.slice(3, -1))],
  [
    "both",
    /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/y,
    (piece) => codePoint((JSON.parse(`"${piece}"`) as string).codePointAt(0) ?? 0),
  ],
  ["both", /\\u[dD][89a-fA-F][0-9a-fA-F]{2}/y, refuse("half a character")],
  ["both", /\\u[0-9a-fA-F]{4}/y, (piece) => fromHex(piece.slice(2))],
  ["both", /\\x[0-9a-fA-F]{2}/y, (piece) => fromHex(piece.slice(2))],
  ["both", /\\c[A-Za-z]/y, (piece) => codePoint(piece.charCodeAt(2) % 32)],
  ["both", /\\0/y, () => "\\x00"],
  ["both", /\\s/y, classOf(SPACES)],
  ["both", /\\S/y, classOf(OTHERS)],
  ["both", /\\[pP]\{[A-Z][a-z]?\}/y, same],
  ["both", /\\[pP]/y, refuse("of Unicode's properties only the short names of categories")],
  ["both", /\\[k1-9]/y, refuse("no backreference")],
  ["both", /\\./y, same],
];

/** Throws for what has no form in RE2. */
export function toRe2(source: string): string {
  let out = "";
  let inClass = false;
  let at = 0;
  while (at < source.length) {
    const row = fitting(source, at, inClass);
    const piece = row?.[0] ?? String.fromCodePoint(source.codePointAt(at) ?? 0);
    if (row === undefined && piece === (inClass ? "]" : "[")) inClass = !inClass;
    out += row === undefined ? piece : row[1](piece, inClass);
    at += piece.length;
  }
  return out === "" ? "(?:)" : out;
}

function fitting(source: string, at: number, inClass: boolean): readonly [string, Rewrite] | undefined {
  for (const [where, pattern, rewrite] of ROWS) {
    if (where === (inClass ? "out" : "in")) continue;
    pattern.lastIndex = at;
    const piece = pattern.exec(source)?.[0];
    if (piece !== undefined) return [piece, rewrite];
  }
  return undefined;
}
