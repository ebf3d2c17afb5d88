/**
 * The keywords of JSON Schema 2020-12 that a contract's schema may use: one row each.
 *
 * Whatever has no row is refused. A validator that skips what it does not know would let a misspelt
 * `minimun` through, and two validators would disagree about an argument. Refused on purpose:
 * - `$id`, `$anchor`, `$dynamicRef`, `$dynamicAnchor`, `$vocabulary`: an artifact is named by its digest,
 *   and a document that renames itself or its parts could be read in two ways;
 * - `definitions`, `dependencies` and other words of older drafts, `contentSchema`.
 * `format` and the `content…` words are annotations, as 2020-12 has them: never checked, so that every
 * validator comes to the same verdict whichever formats its library knows.
 */
import { type Json } from "../base/canonical.ts";

export type Keyword = {
  /** What its value is: one schema, a list of them, schemas by name, or no schema. */
  readonly holds: "schema" | "list" | "map" | "value";
  /** Its schemas judge the same value as the schema it stands in. */
  readonly inPlace?: true;
  /** Says nothing about validity. */
  readonly annotation?: true;
  readonly fits: (value: Json) => boolean;
};

const TYPES: ReadonlySet<Json> = new Set(["array", "boolean", "integer", "null", "number", "object", "string"]);

/** A member of this name can't be told from the prototype by what runs a schema. */
const UNSAFE_NAME = "__proto__";
const MAX_WORD = 64;

const isText = (value: Json) => typeof value === "string";
const isFlag = (value: Json) => typeof value === "boolean";
const isNumber = (value: Json) => typeof value === "number";
const isPositive = (value: Json) => typeof value === "number" && value > 0;
const isCount = (value: Json) => Number.isSafeInteger(value) && (value as number) >= 0;
const isWord = (value: Json) => typeof value === "string" && value.length <= MAX_WORD;
const isList = (value: Json) => Array.isArray(value);
const isFilled = (value: Json) => Array.isArray(value) && value.length > 0;
const isAny = () => true;
const isType = (value: Json) => TYPES.has(value);
const isTypes = (value: Json) => isType(value) || (isFilled(value) && isSet(value) && (value as Json[]).every(isType));
const isName = (value: Json) => typeof value === "string" && value !== UNSAFE_NAME;
const isNames = (value: Json) => Array.isArray(value) && isSet(value) && value.every(isName);
const isSet = (value: Json) => Array.isArray(value) && new Set(value).size === value.length;

/** An object, none of whose names is unsafe. */
export function isMap(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).every(isName);
}

const isSchema = (value: Json) => typeof value === "boolean" || isMap(value);

const schema: Keyword = { holds: "schema", fits: isSchema };
const schemaInPlace: Keyword = { ...schema, inPlace: true };
const listInPlace: Keyword = { holds: "list", inPlace: true, fits: isFilled };
const map: Keyword = { holds: "map", fits: isMap };
const value = (fits: (value: Json) => boolean): Keyword => ({ holds: "value", fits });
const note = (fits: (value: Json) => boolean): Keyword => ({ holds: "value", annotation: true, fits });

const KEYWORDS: Readonly<Record<string, Keyword>> = {
  $schema: note(isText),
  $comment: note(isText),
  $defs: map,
  $ref: value(isText),

  allOf: listInPlace,
  anyOf: listInPlace,
  oneOf: listInPlace,
  not: schemaInPlace,
  if: schemaInPlace,
  // oxlint-disable-next-line unicorn/no-thenable
  then: schemaInPlace,
  else: schemaInPlace,
  dependentSchemas: { ...map, inPlace: true },

  properties: map,
  patternProperties: map,
  additionalProperties: schema,
  propertyNames: schema,
  unevaluatedProperties: schema,
  prefixItems: { holds: "list", fits: isFilled },
  items: schema,
  contains: schema,
  unevaluatedItems: schema,

  type: value(isTypes),
  enum: value(isFilled),
  const: value(isAny),
  multipleOf: value(isPositive),
  maximum: value(isNumber),
  exclusiveMaximum: value(isNumber),
  minimum: value(isNumber),
  exclusiveMinimum: value(isNumber),
  maxLength: value(isCount),
  minLength: value(isCount),
  pattern: value(isText),
  maxItems: value(isCount),
  minItems: value(isCount),
  uniqueItems: value(isFlag),
  maxContains: value(isCount),
  minContains: value(isCount),
  maxProperties: value(isCount),
  minProperties: value(isCount),
  required: value(isNames),
  dependentRequired: value((names) => isMap(names) && Object.values(names).every(isNames)),

  title: note(isText),
  description: note(isText),
  default: note(isAny),
  deprecated: note(isFlag),
  readOnly: note(isFlag),
  writeOnly: note(isFlag),
  examples: note(isList),
  format: note(isWord),
  contentEncoding: note(isWord),
  contentMediaType: note(isText),
};

/** The row of a keyword; `undefined` for a word that no contract uses. */
export function keyword(name: string): Keyword | undefined {
  return Object.hasOwn(KEYWORDS, name) ? KEYWORDS[name] : undefined;
}

/** The schemas that stand under one keyword, each with its place below it. */
export function schemasUnder(row: Keyword, held: Json): (readonly [place: string, schema: Json])[] {
  switch (row.holds) {
    case "value":
      return [];
    case "schema":
      return [["", held]];
    case "list":
    case "map":
      return Object.entries(held as { [key: string]: Json }).map(([name, one]) => [`/${escaped(name)}`, one]);
  }
}

/** A name as a JSON pointer spells it. */
function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
