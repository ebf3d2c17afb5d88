/**
 * Keywords that Ajv's own code runs too slowly for hostile data, or wrongly for some: rewritten here, and
 * metered.
 *
 * Ajv compares values pairwise (quadratic for `uniqueItems`), and by calling `valueOf` and `toString` of
 * whatever has members of these names. Here values are equal if their keys are: a text that is the same
 * for equal JSON values, whatever the order of members.
 */
import { type Json } from "../base/canonical.ts";
import { isMap } from "./keywords.ts";
import { type Meter } from "./meter.ts";

type Judge = (data: unknown) => boolean;
export type PlainKeyword = {
  readonly keyword: string;
  readonly type?: "array" | "object";
  readonly message: string;
  readonly judge: (held: Json, meter: Meter) => Judge;
};

export const PLAIN_KEYWORDS: readonly PlainKeyword[] = [
  { keyword: "const", message: "must be equal to the constant", judge: (held, meter) => oneOf([held], meter) },
  {
    keyword: "enum",
    message: "must be one of the allowed values",
    judge: (held, meter) => oneOf(Array.isArray(held) ? held : [], meter),
  },
  {
    keyword: "uniqueItems",
    type: "array",
    message: "must not hold an item twice",
    judge: (held, meter) => (data) => {
      if (held !== true || !Array.isArray(data)) return true;
      return new Set(data.map((item) => equalityKey(item, meter))).size === data.length;
    },
  },
  {
    keyword: "dependentRequired",
    type: "object",
    message: "lacks a member that another one asks for",
    judge: (held, meter) => {
      const needs = isMap(held) ? Object.entries(held) : [];
      const isMet = (data: unknown, name: string, names: Json) => {
        meter.spend(1);
        if (!has(data, name) || !Array.isArray(names)) return true;
        meter.spend(names.length);
        return names.every((needed) => typeof needed === "string" && has(data, needed));
      };
      return (data) => needs.every(([name, names]) => isMet(data, name, names));
    },
  },
];

function has(data: unknown, name: string): boolean {
  return typeof data === "object" && data !== null && Object.hasOwn(data, name);
}

function oneOf(values: readonly Json[], meter: Meter): Judge {
  const allowed = new Set(values.map((one) => equalityKey(one, meter)));
  const plain = values.every((one) => typeof one !== "object" || one === null);
  return (data) => !(plain && typeof data === "object" && data !== null) && allowed.has(equalityKey(data, meter));
}

/** A text that two JSON values share exactly if they are equal. */
function equalityKey(value: unknown, meter: Meter): string {
  if (typeof value === "string") {
    meter.spend(1 + (value.length >>> 5));
    return JSON.stringify(value);
  }
  meter.spend(1);
  if (typeof value !== "object" || value === null) return String(Object.is(value, -0) ? 0 : value);
  if (Array.isArray(value)) return `[${value.map((item) => equalityKey(item, meter)).join()}]`;
  const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${equalityKey(member, meter)}`).join()}}`;
}
