/** Shapes of what the endpoint `delivery` serves: who of a principal is connected, and ending that (§13.1). */
import { z } from "zod";
import { PRINCIPAL_TOKEN } from "../base/grammar.ts";

const token = z.string().regex(PRINCIPAL_TOKEN);
const count = z.int().nonnegative();

/** Principals of one question. */
export const MAX_PRINCIPALS = 64;

/** Whoever asks waits this long at least: a proof begins only when no login from before can still come in. */
export const ORACLE_DEADLINE_MS = 15_000;

export const PrincipalsArgs = z.strictObject({
  principals: z
    .array(z.strictObject({ owner: token, actor: token }))
    .min(1)
    .max(MAX_PRINCIPALS),
});
export type PrincipalsArgs = z.infer<typeof PrincipalsArgs>;

/**
 * `gone` is proved: every server there is listed every connection, late enough, and none is of it. `live`:
 * connections were there at the last look. Everything else is `unknown`, and `why` says what is missing.
 */
export const PrincipalState = z.enum(["gone", "live", "unknown"]);
export type PrincipalState = z.infer<typeof PrincipalState>;

export const PrincipalVerdict = z.looseObject({
  owner: token,
  actor: token,
  state: PrincipalState,
  /** Connections that were seen, each once. */
  found: count,
  /** How many of them the broker has ended at our word. */
  closed: count,
  why: z.string().optional(),
});
export type PrincipalVerdict = z.infer<typeof PrincipalVerdict>;

/** In the order of the question. */
export const PrincipalsAnswer = z.looseObject({ principals: z.array(PrincipalVerdict) });
export type PrincipalsAnswer = z.infer<typeof PrincipalsAnswer>;
