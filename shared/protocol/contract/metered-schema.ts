/**
 * A schema as it is given to Ajv: every schema in it says what judging a value by it costs, and nothing
 * that only describes is left.
 */
import { type Json } from "../base/canonical.ts";
import { isMap, keyword, schemasUnder } from "./keywords.ts";
import { PLAIN_KEYWORDS } from "./plain-keywords.ts";

/** The keyword of ours that spends from the meter. No document can hold it: it is in no profile. */
export const SPEND = "cotal-spend";

/** A copy; the document of an artifact is shared and stays as it is. */
export function meteredSchema(schema: Json): Json {
  if (!isMap(schema)) return schema;
  const out: { [key: string]: Json } = { [SPEND]: weightOf(schema) };
  for (const [name, held] of Object.entries(schema)) {
    const row = keyword(name);
    if (row === undefined || row.annotation) continue;
    out[name] = row.holds === "value" ? held : meteredUnder(row.holds, held);
  }
  return out;
}

function meteredUnder(holds: "schema" | "list" | "map", held: Json): Json {
  if (holds === "schema") return meteredSchema(held);
  if (Array.isArray(held)) return held.map(meteredSchema);
  return isMap(held) ? Object.fromEntries(Object.entries(held).map(([name, one]) => [name, meteredSchema(one)])) : held;
}

/** Their own code spends for what they do. */
const SPEND_THEMSELVES: ReadonlySet<string> = new Set(PLAIN_KEYWORDS.map(({ keyword: name }) => name));

/** Checks that one judgement by this schema makes: one for each schema and each value right under it. */
function weightOf(schema: { readonly [key: string]: Json }): number {
  let weight = 1;
  for (const [name, held] of Object.entries(schema)) {
    const row = keyword(name);
    if (row === undefined || row.annotation || name === "$defs" || SPEND_THEMSELVES.has(name)) continue;
    weight += row.holds === "value" ? countOf(held) : schemasUnder(row, held).length;
  }
  return weight;
}

function countOf(value: Json): number {
  if (typeof value !== "object" || value === null) return 1;
  return Object.values(value).reduce((sum: number, member) => sum + countOf(member), 1);
}
