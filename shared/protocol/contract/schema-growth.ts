/**
 * Has a schema only grown? (Supplement A, "Compatibility".)
 *
 * Whether one JSON Schema admits all that another does can't be decided in general, so this is a short list
 * of what counts as growth; everything else is another contract:
 * - a field is added that need not be there and has a `default`, where unknown fields were not judged;
 * - what is taken as input: a value is added to an `enum`, an alternative at the end of `anyOf`;
 * - words that only describe are changed.
 * Fields keep their schemas and whether they are required. Below a keyword that could turn a wider schema
 * into a narrower one (`not`, `if`, `oneOf`, `contains` and the like) nothing grows.
 */
import { type Json, canonicalJson } from "../base/canonical.ts";
import { type SchemaClosure } from "./closure.ts";
import { isMap, keyword, schemasUnder } from "./keywords.ts";
import { contractInvalid } from "./limits.ts";

/** Which side of a command: more values may be taken, not given. */
export type Side = "input" | "output";

type SchemaObject = { readonly [key: string]: Json };
/** A schema, and the document that its local references are meant in. */
type Placed<T extends Json = Json> = { readonly schema: T; readonly document: Json; readonly closure: SchemaClosure };

type Comparison = {
  readonly side: Side;
  readonly changes: string[];
  /** Pairs that were compared: a schema that refers to itself comes by again. */
  readonly met: { readonly [mode in Mode]: Map<Json, Set<Json>> };
  /** What is still to be compared. A list, not the stack: references can make a long way of it. */
  readonly open: { readonly mode: Mode; readonly before: Placed; readonly after: Placed; readonly path: string }[];
};

/** May anything grow here at all? */
type Mode = "grows" | "stays";

/** Keywords that may grow, or schemas below them: what they take more, the whole takes more. */
const TRANSPARENT: ReadonlySet<string> = new Set([
  "enum",
  "$ref",
  "allOf",
  "anyOf",
  "properties",
  "patternProperties",
  "additionalProperties",
  "items",
  "prefixItems",
]);

/** Pairs of schemas that one comparison looks at; references can make more of them than there are schemas. */
const MAX_PAIRS = 20_000;

/** What is no growth, each with its place; empty if the new schema has only grown. */
export function schemaChanges(before: SchemaClosure, after: SchemaClosure, side: Side): string[] {
  if (before.digest === after.digest) return [];
  const met = { grows: new Map(), stays: new Map() };
  const open: Comparison["open"] = [{ mode: "grows", before: rootOf(before), after: rootOf(after), path: "" }];
  const comparison: Comparison = { side, changes: [], met, open };
  for (const { mode, before: old, after: now, path } of open) {
    comparePair(comparison, mode, old, now, path);
  }
  return comparison.changes;
}

function rootOf(closure: SchemaClosure): Placed {
  const document = closure.root.value;
  return { schema: document, document, closure };
}

function later({ open }: Comparison, mode: Mode, before: Placed, after: Placed, path: string): void {
  if (open.length >= MAX_PAIRS) throw contractInvalid("two revisions of a schema are too entangled to compare");
  open.push({ mode, before, after, path });
}

const MAX_PATH = 200;
/** References can lead a long way down; what is said of it stays short. */
const below = (path: string, part: string) => (path.length > MAX_PATH ? path : `${path}${part}`);

function comparePair(comparison: Comparison, mode: Mode, before: Placed, after: Placed, path: string): void {
  const old = resolved(before);
  const now = resolved(after);
  if (!isMap(old.schema) || !isMap(now.schema)) {
    if (old.schema !== now.schema) comparison.changes.push(`${path || "/"} is another schema`);
    return;
  }
  const met = comparison.met[mode].get(old.schema) ?? new Set();
  if (met.has(now.schema)) return;
  comparison.met[mode].set(old.schema, met.add(now.schema));
  const pair = { before: { ...old, schema: old.schema }, after: { ...now, schema: now.schema } };
  for (const name of new Set([...Object.keys(old.schema), ...Object.keys(now.schema)])) {
    const may = TRANSPARENT.has(name) ? mode : "stays";
    const at = { ...pair, path: below(path, `/${name}`) };
    if (name === "properties") compareFields(comparison, may, at);
    else if (name !== "$defs" && !describes(name)) compareKeyword(comparison, may, name, at);
  }
}

/** A default says what an absent field means: more than a description. */
function describes(name: string): boolean {
  return name !== "default" && keyword(name)?.annotation === true;
}

type Pair = { readonly before: Placed<SchemaObject>; readonly after: Placed<SchemaObject>; readonly path: string };

function compareKeyword(comparison: Comparison, mode: Mode, name: string, { before, after, path }: Pair): void {
  const old = own(before.schema, name);
  const now = own(after.schema, name);
  const row = keyword(name);
  const { side, changes } = comparison;
  const grows = mode === "grows" && side === "input";
  if (old === undefined || now === undefined || row === undefined) {
    changes.push(`${path} has come or gone`);
  } else if (name === "$ref") {
    later(comparison, mode, { ...before, schema: { $ref: old } }, { ...after, schema: { $ref: now } }, path);
  } else if (row.holds === "value") {
    const more = name === "enum" && grows && isSuperset(old, now);
    if (!more && !sameValue(inOrder(name, old), inOrder(name, now))) changes.push(`${path} has changed`);
  } else {
    const places = schemasUnder(row, old);
    const others = new Map(schemasUnder(row, now));
    const longer = name === "anyOf" && grows && others.size >= places.length;
    if (!longer && others.size !== places.length) changes.push(`${path} holds more or fewer`);
    for (const [place, schema] of places) {
      const other = others.get(place);
      if (other === undefined) changes.push(`${path}${place} is gone`);
      else later(comparison, mode, { ...before, schema }, { ...after, schema: other }, below(path, place));
    }
  }
}

function compareFields(comparison: Comparison, mode: Mode, { before, after, path }: Pair): void {
  const old = fieldsOf(before.schema);
  const now = fieldsOf(after.schema);
  for (const [name, schema] of old) {
    const other = now.get(name);
    if (other === undefined) comparison.changes.push(`${path}/${name} is gone`);
    else later(comparison, mode, { ...before, schema }, { ...after, schema: other }, below(path, `/${name}`));
  }
  for (const [name, schema] of now) {
    if (old.has(name)) continue;
    if (mode === "stays" || judgesUnknown(before.schema))
      comparison.changes.push(`${path}/${name} can't be added there`);
    else if (!hasDefault({ ...after, schema })) comparison.changes.push(`${path}/${name} is new and has no default`);
  }
}

function fieldsOf(schema: SchemaObject): ReadonlyMap<string, Json> {
  const held = own(schema, "properties");
  return new Map(held !== undefined && isMap(held) ? Object.entries(held) : []);
}

/** Did the schema say something of fields that it does not name, other than that there are none? */
function judgesUnknown(schema: SchemaObject): boolean {
  const others = own(schema, "additionalProperties") ?? true;
  const open = typeof others === "boolean" || (isMap(others) && Object.keys(others).length === 0);
  return !open || own(schema, "patternProperties") !== undefined;
}

/** Follows a reference that stands alone; one beside other words is followed when its turn comes. */
function resolved(placed: Placed): Placed {
  const { schema, document, closure } = placed;
  if (!isMap(schema)) return placed;
  const ref = schema["$ref"];
  const alone = Object.keys(schema).every((name) => name === "$ref" || name === "$defs" || describes(name));
  if (typeof ref !== "string" || !alone) return placed;
  if (!ref.startsWith("#")) {
    const member = closure.members.get(ref)?.value ?? true;
    return resolved({ schema: member, document: member, closure });
  }
  return resolved({ ...placed, schema: at(document, ref.slice(1)) });
}

/** The schema that a pointer of a checked document names. */
function at(document: Json, pointer: string): Json {
  let here = document;
  for (const token of pointer.split("/").slice(1)) {
    const name = token.replaceAll("~1", "/").replaceAll("~0", "~");
    here = own(here as SchemaObject, name) ?? true;
  }
  return here;
}

function hasDefault(placed: Placed): boolean {
  const { schema } = placed;
  if (!isMap(schema)) return false;
  const target = resolved(placed).schema;
  return own(schema, "default") !== undefined || (isMap(target) && own(target, "default") !== undefined);
}

function own(schema: SchemaObject, name: string): Json | undefined {
  return Object.hasOwn(schema, name) ? schema[name] : undefined;
}

function isSuperset(old: Json | undefined, now: Json | undefined): boolean {
  if (!Array.isArray(old) || !Array.isArray(now)) return false;
  const values = new Set(now.map((one) => canonicalJson(one)));
  return old.every((one) => values.has(canonicalJson(one)));
}

/** Lists whose order says nothing. */
function inOrder(name: string, value: Json): Json {
  return (name === "required" || name === "type" || name === "enum") && Array.isArray(value)
    ? value.map((one) => canonicalJson(one)).toSorted()
    : value;
}

function sameValue(a: Json, b: Json): boolean {
  return canonicalJson(a) === canonicalJson(b);
}
