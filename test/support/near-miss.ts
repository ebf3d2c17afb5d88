/**
 * What a parser of wire bytes has to survive: random values, and valid ones with one thing wrong.
 *
 * A near miss finds more than noise does: it passes the first checks and reaches the ones behind.
 */
import fc from "fast-check";
import { CotalError } from "../../shared/protocol/base/errors.ts";

/** Values of the wrong type, and of the right type in the wrong shape. All of them come out of `JSON.parse`. */
const HOSTILE: readonly unknown[] = [
  null,
  true,
  0,
  -0,
  -1,
  1.5,
  2 ** 53,
  Number.POSITIVE_INFINITY,
  "",
  " ",
  "nope",
  "constructor",
  "__proto__",
  "\u0000",
  "\ud800",
  "a".repeat(5000),
  ".".repeat(5000),
  {},
  [],
  [[]],
  { toString: null, valueOf: null },
  { length: 2 ** 32 },
  { message: null, code: {}, kind: 7 },
  deep(300),
  deepArray(600),
];

function deep(levels: number): unknown {
  let value: unknown = "x";
  for (let level = 0; level < levels; level += 1) value = { a: value };
  return value;
}

function deepArray(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

export const hostile: fc.Arbitrary<unknown> = fc.oneof(fc.constantFrom(...HOSTILE), fc.jsonValue());

type Path = readonly (string | number)[];

/** Every place of a JSON value down to a depth where nothing of ours looks, its own included. */
function places(value: unknown, at: Path = []): Path[] {
  if (typeof value !== "object" || value === null || at.length > 12) return [at];
  return [at, ...Object.entries(value).flatMap(([key, member]) => places(member, [...at, key]))];
}

/** A copy of the value with the member at the path replaced by what `change` makes of it. */
function changed(value: unknown, path: Path, change: (old: unknown) => unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return change(value);
  if (Array.isArray(value)) {
    return value.map((member: unknown, index) =>
      String(index) === String(key) ? changed(member, rest, change) : member,
    );
  }
  const out: [string, unknown][] = Object.entries(value as object).map(([name, member]) => [
    name,
    name === key ? changed(member, rest, change) : member,
  ]);
  return fromEntries(out);
}

/** Unlike an assignment it makes `__proto__` a member, as `JSON.parse` does. */
function fromEntries(entries: readonly (readonly [string, unknown])[]): object {
  return Object.fromEntries(entries);
}

const REMOVED = Symbol("removed");

function withoutRemoved(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.filter((member) => member !== REMOVED).map(withoutRemoved);
  return fromEntries(
    Object.entries(value).flatMap(([key, member]) =>
      member === REMOVED ? [] : [[key, withoutRemoved(member)] as const],
    ),
  );
}

function withExtra(old: unknown, extra: unknown): unknown {
  if (Array.isArray(old)) return [...(old as unknown[]), extra];
  if (typeof old === "object" && old !== null)
    return fromEntries([...Object.entries(old), ["extra", extra], ["__proto__", extra], ["constructor", extra]]);
  return [old, extra];
}

/** One of the valid values with one to three places changed: replaced, removed, or given one more member. */
export function nearMiss(valid: readonly unknown[]): fc.Arbitrary<unknown> {
  const step = fc.record({
    at: fc.nat(),
    bad: hostile,
    how: fc.constantFrom<"replace" | "remove" | "extend">("replace", "remove", "extend"),
  });
  return fc.tuple(fc.constantFrom(...valid), fc.array(step, { minLength: 1, maxLength: 3 })).map(([base, steps]) => {
    let value: unknown = base;
    for (const { at, bad, how } of steps) {
      const all = places(value);
      const path = all[at % all.length] ?? [];
      const gone = path.length === 0 ? bad : REMOVED;
      const change = { replace: () => bad, remove: () => gone, extend: (old: unknown) => withExtra(old, bad) }[how];
      value = withoutRemoved(changed(value, path, change));
    }
    return value;
  });
}

const encoder = new TextEncoder();

/** Bytes: noise, the text of near misses, and valid text cut short or with one byte changed. */
export function nearMissBytes(valid: readonly unknown[]): fc.Arbitrary<Uint8Array> {
  const texts = fc.constantFrom(...valid.map((value) => encoder.encode(JSON.stringify(value))));
  return fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    nearMiss(valid).map((value) => encoder.encode(JSON.stringify(value) ?? "")),
    fc.tuple(texts, fc.nat()).map(([text, at]) => text.slice(0, at % (text.length + 1))),
    fc.tuple(texts, fc.nat(), fc.nat(255)).map(([text, at, byte]) => {
      const copy = Uint8Array.from(text);
      copy[at % copy.length] = byte;
      return copy;
    }),
  );
}

/** A valid text with characters put in, taken out, doubled; and noise. */
export function nearMissText(valid: readonly string[]): fc.Arbitrary<string> {
  const piece = fc.oneof(
    fc.constantFrom(".", "*", ">", "-", "_", "#", "@", ":", "/", "%", " ", "\n", "\u0000", "é", "😀", "\ud800", ""),
    fc.string({ maxLength: 3 }),
    fc.constantFrom("a".repeat(5000), ".".repeat(5000), "%41".repeat(2000)),
  );
  const edit = fc.record({ at: fc.nat(), cut: fc.nat(2), piece });
  return fc.oneof(
    fc.string({ unit: "binary", maxLength: 60 }),
    fc.tuple(fc.constantFrom(...valid), fc.array(edit, { minLength: 1, maxLength: 3 })).map(([text, edits]) =>
      edits.reduce((now, { at, cut, piece: put }) => {
        const where = at % (now.length + 1);
        return `${now.slice(0, where)}${put}${now.slice(where + cut)}`;
      }, text),
    ),
  );
}

/** The call returns, or throws an error of ours: nothing else may leave a parser. */
export function expectTotal(call: () => unknown): void {
  try {
    call();
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw new Error("a parser threw what is no CotalError", { cause: thrown });
  }
}
