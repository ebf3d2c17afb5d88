/**
 * What a named capability says (§9, supplement A): a word of this project's own, or what an actor may ask of
 * somebody's endpoint.
 *
 *     supervise                  a word: one of the scopes in `views.ts`, or `serve`
 *     com.example.echo           the commands of that endpoint that name no capability
 *     com.example.echo:audit     its commands that name `audit`
 *     com.example.echo@all       the same as without `@all`, and to ask all its instances at once
 *
 * Invariants
 * 1. One spelling each, and a list holds each once. What can't be read here is refused where it is granted.
 * 2. It names an endpoint of somebody else: those of this project are granted by profile, never by a
 *    capability.
 * 3. A capability is contained in itself, and in itself with `@all`; in nothing else.
 */
import { z } from "zod";
import { COMMAND_TOKEN } from "../base/grammar.ts";
import { badRequest } from "../base/errors.ts";
import { isEndpointName } from "./names.ts";
import { Scope } from "./views.ts";

/** May register and serve the endpoints that its owner has been assigned. */
export const SERVE_CAPABILITY = "serve";

/** Named capabilities (§9) that one row may carry. */
export const MAX_CAPABILITIES = 32;

const ALL = "@all";

/** Words that open something here: the scopes of views, and serving. */
export const CAPABILITY_WORDS: readonly string[] = [...Object.values(Scope), SERVE_CAPABILITY];

export type Capability =
  | { readonly kind: "word"; readonly word: string }
  | {
      readonly kind: "endpoint";
      readonly endpoint: string;
      /** The named capability of its commands; absent: those that name none. */
      readonly capability?: string;
      readonly scatter: boolean;
    };

/** `undefined` for what is no capability. */
export function parseCapability(text: string): Capability | undefined {
  if (COMMAND_TOKEN.test(text)) return { kind: "word", word: text };
  const scatter = text.endsWith(ALL);
  const [endpoint = "", capability, ...more] = (scatter ? text.slice(0, -ALL.length) : text).split(":");
  const foreign = endpoint.includes(".") && isEndpointName(endpoint);
  if (!foreign || more.length > 0 || (capability !== undefined && !COMMAND_TOKEN.test(capability))) return undefined;
  return { kind: "endpoint", endpoint, scatter, ...(capability === undefined ? {} : { capability }) };
}

export const isCapability = (text: string): boolean => parseCapability(text) !== undefined;

const capability = z
  .string()
  .refine(isCapability, "no capability: a word, or ENDPOINT, ENDPOINT:NAME, with @all behind");

/** As somebody asks for it: any order. */
export const AskedCapabilities = z.array(capability).max(MAX_CAPABILITIES);
/** As a row holds it: sorted, each once. */
export const KeptCapabilities = AskedCapabilities.refine(isSortedSet, "not sorted, or one twice");

function isSortedSet(list: readonly string[]): boolean {
  return list.every((text, at) => at === 0 || (list[at - 1] ?? "") < text);
}

/** One spelling of the same capabilities, so that equal grants are equal rows. */
export function sortedCapabilities(list: readonly string[]): string[] {
  return [...new Set(list)].toSorted();
}

/** The list as somebody is granted it. Throws `bad-request` for one that would open nothing. */
export function grantedCapabilities(list: readonly string[]): string[] {
  for (const text of list) {
    const parsed = parseCapability(text);
    if (parsed === undefined) {
      throw badRequest(
        `${JSON.stringify(text.slice(0, 120))} is no capability`,
        "name an endpoint of somebody else's, as com.example.echo, com.example.echo:audit for its commands that need " +
          `audit, each with @all behind it to ask all instances at once; or one of ${CAPABILITY_WORDS.join(", ")}`,
      );
    }
    if (parsed.kind === "word" && !CAPABILITY_WORDS.includes(parsed.word)) {
      throw badRequest(
        `the capability ${JSON.stringify(text)} opens nothing here`,
        `the words that do are ${CAPABILITY_WORDS.join(", ")}; what an endpoint's commands need is named with the endpoint: ` +
          `com.example.echo:${text}`,
      );
    }
  }
  const sorted = sortedCapabilities(list);
  if (sorted.length <= MAX_CAPABILITIES) return sorted;
  throw badRequest(`${sorted.length} capabilities are named, and ${MAX_CAPABILITIES} are allowed`, "name fewer");
}

/** Does the one open all that the other does? */
export function containsCapability(outer: string, inner: string): boolean {
  return outer === inner || outer === `${inner}${ALL}`;
}

/** What both lists open, one by one: never more than either. */
export function bothCapabilities(one: readonly string[], other: readonly string[]): string[] {
  const within = (list: readonly string[], all: readonly string[]) =>
    list.filter((inner) => all.some((outer) => containsCapability(outer, inner)));
  return sortedCapabilities([...within(one, other), ...within(other, one)]);
}

/** What a caller needs of a command: what the governance head of its endpoint remembers (supplement B). */
export type Needed = { readonly command: string; readonly capability?: string | undefined };

/** Does this capability open that command of its endpoint? */
export function opens(capability: Extract<Capability, { kind: "endpoint" }>, needed: Needed): boolean {
  return capability.capability === needed.capability;
}
