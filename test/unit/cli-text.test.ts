/** Wire text on a terminal: nothing that moves a cursor or reorders a line gets through. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { indented, oneLine, table } from "../../cli/text.ts";

/** Written by hand and by code point, apart from the expression under test. */
function isDangerous(character: string): boolean {
  const code = character.codePointAt(0) ?? 0;
  return (
    code < 0x20 ||
    (code >= 0x7f && code <= 0x9f) ||
    [0x061c, 0x200e, 0x200f, 0x2028, 0x2029, 0xfeff].includes(code) ||
    (code >= 0x202a && code <= 0x202e) ||
    (code >= 0x2066 && code <= 0x2069) ||
    (code >= 0xd800 && code <= 0xdfff)
  );
}

const wireText = fc.string({
  unit: fc.oneof(
    fc.integer({ min: 0, max: 0xffff }).map((code) => String.fromCodePoint(code)),
    fc.constantFrom("\u001b[31m", "\u001b]0;x\u0007", "\u202e", "\n", "a"),
  ),
  maxLength: 60,
});

describe("text of the wire", () => {
  test("one line holds no control character, whatever came", () => {
    fc.assert(
      fc.property(wireText, (text) => {
        expect(Array.from(oneLine(text)).filter(isDangerous)).toEqual([]);
      }),
    );
  });

  test("several lines hold no control character but tab and line feed, and no line begins at the margin", () => {
    fc.assert(
      fc.property(wireText, (text) => {
        const shown = indented(text, 4);
        expect(Array.from(shown).filter((one) => isDangerous(one) && one !== "\n" && one !== "\t")).toEqual([]);
        expect(
          shown
            .split("\n")
            .slice(1)
            .filter((line) => !line.startsWith("    ")),
        ).toEqual([]);
      }),
    );
  });

  test("an escape sequence is shown, not obeyed", () => {
    expect(oneLine("a\u001b[2Jb\r\nc")).toBe("a\\u{1b}[2Jb\\r\\nc");
  });

  test("plain text, emoji and other scripts stay as they are", () => {
    const text = "größe 漢字 🚀 'x' \\n";
    expect(oneLine(text)).toBe(text);
    expect(indented(text, 2)).toBe(text);
  });

  test("a table pads by what is seen, not by colour codes", () => {
    const green = "\u001b[32mok\u001b[39m";
    expect(
      table([
        ["a", green, "x"],
        ["bbb", "down", "y"],
      ]),
    ).toEqual([`a    ${green}    x`, "bbb  down  y"]);
  });
});
