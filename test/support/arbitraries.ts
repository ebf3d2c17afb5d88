/** Random values of the wire grammar, spelled independently of the grammar file. */
import fc from "fast-check";

const WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

const of = (alphabet: string, minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...alphabet.split("")), minLength, maxLength });

export const spaces = of(`${WORD}-`, 1, 32);
export const owners = fc.oneof(
  fc.constant("local"),
  of(BASE32, 26, 26).map((tail) => `u_${tail}`),
);
export const actors = of(WORD, 1, 64);
export const principals = fc.record({ owner: owners, actor: actors });
export const roles = of(`${WORD}-`, 1, 64);
export const lifecycleUids = of("abcdefghijklmnopqrstuvwxyz0123456789", 26, 32);
export const channels = fc.array(of(`${WORD}-`, 1, 8), { minLength: 1, maxLength: 5 }).map((parts) => parts.join("."));

/** Patterns over a small alphabet, so that two of them often meet. */
export const patterns = fc
  .tuple(fc.array(fc.constantFrom("a", "b", "*"), { minLength: 0, maxLength: 4 }), fc.boolean())
  .map(([parts, tail]) => (tail || parts.length === 0 ? [...parts, ">"] : parts).join("."));

/** Concrete channels over the same alphabet, and one segment that no pattern names. */
export const smallChannels = fc
  .array(fc.constantFrom("a", "b", "z"), { minLength: 1, maxLength: 6 })
  .map((parts) => parts.join("."));
