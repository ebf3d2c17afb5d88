/**
 * Anycast requests and their takes (§8.1): shapes, codes, keys. The daemon that serves the rail and
 * the holder's rules live elsewhere; this file is what both must agree on.
 */
import { z } from "zod";
import { MAX_NAME_LENGTH, NOT_ONE_LINE } from "../base/grammar.ts";

/** Answer codes of a refused take. */
export const TakeCode = z.enum(["cancelled", "taken", "gone", "mismatch", "busy"]);
export type TakeCode = z.infer<typeof TakeCode>;

/** A holder's display name: one line, no surrounding space, no `/` or `\`. */
export const HolderName = z
  .string()
  .min(1)
  .max(MAX_NAME_LENGTH)
  .refine(
    (name) => name.isWellFormed() && name === name.trim() && !NOT_ONE_LINE.test(name) && !/[/\\]/.test(name),
    "not a holder name",
  );

const sequence = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);

export const TakeRequest = z.looseObject({
  from: z.looseObject({ id: z.string(), name: HolderName }),
  seq: sequence,
  id: z.string(),
  count: sequence,
  epoch: z.string(),
});
export type TakeRequest = z.infer<typeof TakeRequest>;

export const TakeReply = z.union([
  z.looseObject({ ok: z.literal(true) }),
  z.looseObject({ ok: z.literal(false), code: TakeCode, error: z.string() }),
]);
export type TakeReply = z.infer<typeof TakeReply>;

const party = z.looseObject({ id: z.string(), name: z.string() });

export const AnycastStatus = z.union([
  z.looseObject({ state: z.literal("waiting"), seq: sequence, role: z.string() }),
  z.looseObject({
    state: z.literal("taken"),
    seq: sequence,
    role: z.string(),
    taker: party,
    previous: party.optional(),
    at: z.number(),
  }),
  z.looseObject({
    state: z.literal("cancelled"),
    seq: sequence,
    role: z.string(),
    removal: z.enum(["pending", "deleted", "already-gone"]),
  }),
  z.looseObject({ state: z.literal("unknown"), seq: sequence }),
]);
export type AnycastStatus = z.infer<typeof AnycastStatus>;

/** The data part of a notice DM. */
export const AnycastNotice = z.looseObject({
  cotalAnycastNotice: z.looseObject({
    seq: sequence,
    role: z.string(),
    event: z.enum(["taken", "redelivered"]),
    taker: party,
    previous: party.optional(),
  }),
});

export type AnycastNotice = z.infer<typeof AnycastNotice>;

/** A stream's creation time as row keys use it: characters outside `[0-9A-Za-z]` removed. */
export function epochToken(created: string): string {
  return created.replace(/[^0-9A-Za-z]/g, "");
}

/** Key of a request's row in `cotal_anycast_<space>`. */
export function anycastKey(created: string, seq: number): string {
  return `r.${epochToken(created)}.${seq}`;
}

const ANYCAST_KEY = /^r\.([0-9A-Za-z]+)\.([1-9][0-9]{0,15})$/;

/** What a row's key says; `undefined` for a key that no request has. */
export function parseAnycastKey(key: string): { readonly epoch: string; readonly seq: number } | undefined {
  const [, epoch, digits] = ANYCAST_KEY.exec(key) ?? [];
  const seq = Number(digits);
  return epoch !== undefined && Number.isSafeInteger(seq) ? { epoch, seq } : undefined;
}
