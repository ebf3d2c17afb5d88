/**
 * Principals (§2): the wire identity `(owner, actor)` and its two spellings.
 *
 * Invariants
 * 1. A principal token is refused, never rewritten: two spellings must not meet in one identity.
 * 2. The dot-form keys subjects, `from.id`, `card.id` and presence; the dash-form keys durables.
 * 3. A connection's nkey is never a principal.
 */
import { INBOX_NONCE, LIFECYCLE_UID, OWNER_TOKEN, PRINCIPAL_TOKEN } from "./grammar.ts";
import { badRequest } from "./errors.ts";

export type Principal = { readonly owner: string; readonly actor: string };

/** The owner of every principal in an open space (§2). */
export const OPEN_OWNER = "local";

/** Builds a principal; refuses a token outside `[A-Za-z0-9_]{1,64}`. */
export function principal(owner: string, actor: string): Principal {
  for (const [what, token] of [
    ["owner", owner],
    ["actor", actor],
  ] as const) {
    if (!PRINCIPAL_TOKEN.test(token)) {
      throw badRequest(
        `${what} ${JSON.stringify(token.slice(0, 80))} is not a principal token`,
        "use 1 to 64 letters, digits or underscores",
      );
    }
  }
  return { owner, actor };
}

/** `owner.actor` (§2). */
export function dotForm(p: Principal): string {
  return `${p.owner}.${p.actor}`;
}

/** `owner-actor` (§2), for names that may not hold a dot. */
export function dashForm(p: Principal): string {
  return `${p.owner}-${p.actor}`;
}

/** Parses the dot-form; `undefined` for anything else. */
export function parseDotForm(text: string): Principal | undefined {
  return split(text, ".");
}

/** Parses the dash-form; `undefined` for anything else. */
export function parseDashForm(text: string): Principal | undefined {
  return split(text, "-");
}

function split(text: string, separator: string): Principal | undefined {
  const parts = text.split(separator);
  const [owner, actor] = parts;
  if (parts.length !== 2 || owner === undefined || actor === undefined) return undefined;
  if (!PRINCIPAL_TOKEN.test(owner) || !PRINCIPAL_TOKEN.test(actor)) return undefined;
  return { owner, actor };
}

export function samePrincipal(a: Principal, b: Principal): boolean {
  return a.owner === b.owner && a.actor === b.actor;
}

/** The surfacing check of §3: may a message of this owner be shown at all? */
export function isOwnerToken(owner: string): boolean {
  return OWNER_TOKEN.test(owner);
}

export function isLifecycleUid(text: string): boolean {
  return LIFECYCLE_UID.test(text);
}

/** The connection id of decision H61: it scopes the reply inbox and nothing else. */
export function connId(lifecycleUid: string, nonce: string): string {
  if (!LIFECYCLE_UID.test(lifecycleUid)) throw badRequest("lifecycle UID is malformed");
  if (!INBOX_NONCE.test(nonce)) {
    throw badRequest("the inbox nonce must be 22 to 64 letters or digits");
  }
  return `${lifecycleUid}_${nonce}`;
}

/**
 * Encodes random bytes as a token of `[a-z0-9]`, 5 bits a character.
 * 17 bytes give the 26 characters of a lifecycle UID (130 bits are used).
 */
export function encodeToken(bytes: Uint8Array, length: number): string {
  const alphabet = "abcdefghijklmnopqrstuvwxyz234567";
  let bits = 0;
  let held = 0;
  let out = "";
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff;
    bits += 8;
    while (bits >= 5 && out.length < length) {
      bits -= 5;
      out += alphabet[(held >> bits) & 31];
    }
  }
  if (out.length < length) throw badRequest(`need ${length} characters, got ${out.length}`);
  return out;
}

/** Random bytes are a parameter everywhere below the daemons (`architecture`, determinism). */
export type RandomBytes = (count: number) => Uint8Array;

/** A fresh lifecycle UID: 26 characters, 130 random bits (§13.1). */
export function drawLifecycleUid(random: RandomBytes): string {
  return encodeToken(random(17), 26);
}

/** A fresh nonce for an inbox or a request: 26 characters, 130 random bits. */
export function drawNonce(random: RandomBytes): string {
  return encodeToken(random(17), 26);
}
