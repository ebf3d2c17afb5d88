/**
 * Canonical JSON (RFC 8785) and the digests taken over it.
 *
 * Invariant: only a value that JSON can hold is canonicalised. The library drops `undefined` and
 * functions silently, so such a value is refused first, with the path of the offending member.
 */
import { createHash } from "node:crypto";
import canonicalize from "canonicalize";
import { badRequest } from "./errors.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** How deep a document may nest. Deeper ones overflow the stack of whoever walks them next. */
export const MAX_DEPTH = 128;

/**
 * The path of the first member that JSON cannot hold, or `undefined` if there is none.
 * Paths read like code: `data.a[1]`. Lone surrogates count: RFC 8785 forbids them. So does what
 * `JSON.stringify` would drop or replace: hidden members, a member of an array that is no item,
 * `toJSON`. `depth` is how deep the value itself lies in its document.
 */
export function nonJsonPath(value: unknown, path: string, depth = 0): string | undefined {
  return walk(value, path, depth, new Set());
}

/**
 * For values that `JSON.parse` made: does it nest no deeper than `MAX_DEPTH`, with finite numbers
 * only (`1e999` parses to Infinity)? Cheap, because every delivery goes through it.
 */
export function isBounded(value: unknown, depth = 0): boolean {
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  if (depth > MAX_DEPTH) return false;
  if (Array.isArray(value)) {
    for (const item of value) if (!isBounded(item, depth + 1)) return false;
    return true;
  }
  for (const key in value) if (!isBounded((value as Record<string, unknown>)[key], depth + 1)) return false;
  return true;
}

function walk(value: unknown, path: string, depth: number, above: Set<object>): string | undefined {
  if (value === null || typeof value === "boolean") return undefined;
  if (typeof value === "string") return value.isWellFormed() ? undefined : path;
  if (typeof value === "number") return Number.isFinite(value) ? undefined : path;
  if (typeof value !== "object" || depth > MAX_DEPTH || above.has(value)) return path;
  above.add(value);
  const found = Array.isArray(value) ? walkArray(value, path, depth, above) : walkObject(value, path, depth, above);
  above.delete(value);
  return found;
}

function walkArray(value: unknown[], path: string, depth: number, above: Set<object>) {
  if (Object.getPrototypeOf(value) !== Array.prototype) return path;
  for (let index = 0; index < value.length; index += 1) {
    const found = walk(value[index], `${path}[${index}]`, depth + 1, above);
    if (found !== undefined) return found;
  }
  // The items and `length`, and nothing else.
  return Reflect.ownKeys(value).length === value.length + 1 ? undefined : path;
}

function walkObject(value: object, path: string, depth: number, above: Set<object>) {
  const proto: unknown = Object.getPrototypeOf(value);
  if (proto !== null && proto !== Object.prototype) return path;
  const members = Object.entries(value);
  if (Reflect.ownKeys(value).length !== members.length) return path;
  for (const [key, member] of members) {
    const here = /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
    if (!key.isWellFormed()) return here;
    const found = walk(member, here, depth + 1, above);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** RFC 8785 text of a JSON value; refuses what JSON cannot hold and names the path. */
export function canonicalJson(value: unknown, name = "value"): string {
  const bad = nonJsonPath(value, name);
  if (bad !== undefined) throw badRequest(`${bad} is not a JSON value`);
  const text = canonicalize(value);
  if (text === undefined) throw badRequest(`${name} is not a JSON value`);
  return text;
}

/** `sha256:<lowercase hex>` over bytes or UTF-8 text. */
export function digestOf(bytes: Uint8Array | string): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** Digest of the canonical form of one document (supplement A, artifact digest). */
export function canonicalDigest(value: unknown): string {
  return digestOf(canonicalJson(value));
}

/** The hex part of a digest, as `P.epc.<hex>` and row keys use it. */
export function digestHex(digest: string): string {
  return digest.slice("sha256:".length);
}
