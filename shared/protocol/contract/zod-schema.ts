/**
 * From a Zod shape to the document of a contract: JSON Schema 2020-12 of what stands on the wire.
 *
 * The direction is always that of the reader: what the Zod shape takes. A field with a default may be left
 * out, an unknown field is ignored unless the shape is strict. A refinement or a transformation has no
 * form in JSON Schema: it stays with the handler that parses the value by the shape itself.
 */
import { z } from "zod";
import { type SchemaClosure, schemaClosure } from "./closure.ts";
import { contractInvalid } from "./limits.ts";

/** A side without a payload: valid are `null` and nothing at all (supplement A). */
const VOID_SCHEMA = { type: "null" } as const;
export const VOID: SchemaClosure = schemaClosure(VOID_SCHEMA);

/** The closure of one side of a command; `undefined` is the void schema. */
export function zodClosure(shape: z.ZodType | undefined): SchemaClosure {
  return shape === undefined ? VOID : schemaClosure(zodSchema(shape));
}

/** The document of one shape. Refuses what has no JSON form. */
export function zodSchema(shape: z.ZodType): object {
  try {
    const document = z.toJSONSchema(shape, { target: "draft-2020-12", io: "input", override: checkFlags });
    // Zod hangs a hidden member on it that is no JSON.
    return JSON.parse(JSON.stringify(document)) as object;
  } catch (thrown) {
    throw contractInvalid(
      "a shape of the contract has no JSON Schema",
      "use strings, numbers, booleans, null, arrays, objects and unions of them",
      thrown,
    );
  }
}

/** JSON Schema knows no flags: a pattern that needs one would come out as another pattern. */
function checkFlags({ zodSchema: { _zod: shape } }: { readonly zodSchema: z.core.$ZodType }): void {
  const definitions: readonly object[] = [shape.def, ...(shape.def.checks ?? []).map((check) => check._zod.def)];
  for (const definition of definitions) {
    const pattern = "pattern" in definition ? definition.pattern : undefined;
    if (pattern instanceof RegExp && /[^uv]/.test(pattern.flags)) {
      throw new TypeError(`the pattern ${pattern} has flags that JSON Schema does not know`);
    }
  }
}
