/**
 * The channel algebra (§3, §7): one set of rules for ACLs, subscriptions, families and grants.
 *
 * Invariants
 * 1. `*` and `>` are wildcards only as whole segments, `>` only as the last one.
 * 2. `team.>` never covers `team` (§7); matching is the broker's, proved against it.
 * 3. Only a concrete channel is published to; a pattern never becomes a registry key.
 * 4. No channel or pattern is longer than 4096 characters.
 */
import { CHANNEL_SEGMENT, MAX_CHANNEL_LENGTH, UNSAFE_CHARACTER } from "./grammar.ts";
import { badRequest } from "./errors.ts";

/** Maps every character outside `[A-Za-z0-9_-]` to `_` (§3). Lossy; never decoded back. */
export function sanitizeToken(token: string): string {
  return token.replace(UNSAFE_CHARACTER, "_");
}

/**
 * A concrete channel from what a person typed: a leading `#` is dropped, segments are sanitised.
 * Refuses wildcards, empty segments and more than 4096 characters.
 */
export function concreteChannel(text: string): string {
  const channel = channelPattern(text);
  if (!isConcrete(channel)) {
    throw badRequest(
      `${show(text)} is a pattern, and one channel is needed here`,
      "name one channel, such as team.backend",
    );
  }
  return channel;
}

/** A channel or pattern from what a person typed; wildcards stay whole segments. */
export function channelPattern(text: string): string {
  const bare = text.startsWith("#") ? text.slice(1) : text;
  if (bare.length === 0) throw badRequest("the channel is empty", "name one, such as general");
  if (bare.length > MAX_CHANNEL_LENGTH) {
    throw badRequest(
      `the channel has ${bare.length} characters, and ${MAX_CHANNEL_LENGTH} are allowed`,
      "choose a shorter name",
    );
  }
  const segments = bare.split(".");
  const last = segments.length - 1;
  return segments
    .map((segment, index) => {
      if (segment === "") {
        throw badRequest(`${show(text)} has an empty segment`, "write it like team.backend");
      }
      if (segment === "*") return segment;
      if (segment === ">") {
        if (index !== last) {
          throw badRequest(`in ${show(text)} the > is not the last segment`, "write it like team.>");
        }
        return segment;
      }
      return sanitizeToken(segment);
    })
    .join(".");
}

/** True for a lawful wire channel without wildcards. Reads bytes from the wire: never throws. */
export function isChannel(text: string): boolean {
  return (
    text.length > 0 &&
    text.length <= MAX_CHANNEL_LENGTH &&
    text.split(".").every((segment) => CHANNEL_SEGMENT.test(segment))
  );
}

/** True for a lawful wire channel or pattern. */
export function isChannelPattern(text: string): boolean {
  if (text.length === 0 || text.length > MAX_CHANNEL_LENGTH) return false;
  const segments = text.split(".");
  return segments.every(
    (segment, index) =>
      segment === "*" || (segment === ">" && index === segments.length - 1) || CHANNEL_SEGMENT.test(segment),
  );
}

export function isConcrete(pattern: string): boolean {
  return !pattern.split(".").some((segment) => segment === "*" || segment === ">");
}

/** A family (§7): concrete segments, then a final `>`. The root `>` is none. */
export function isFamily(pattern: string): boolean {
  const segments = pattern.split(".");
  return segments.length > 1 && segments.at(-1) === ">" && isConcrete(segments.slice(0, -1).join("."));
}

/** Does the pattern match the concrete channel? The broker's own rule. */
export function matches(pattern: string, channel: string): boolean {
  const want = pattern.split(".");
  const have = channel.split(".");
  for (const [index, segment] of want.entries()) {
    if (segment === ">") return have.length > index;
    if (index >= have.length) return false;
    if (segment !== "*" && segment !== have[index]) return false;
  }
  return want.length === have.length;
}

/** Does `outer` match every channel that `inner` can match? (`perm.*` does not contain `perm.>`.) */
export function contains(outer: string, inner: string): boolean {
  const want = outer.split(".");
  const have = inner.split(".");
  for (const [index, segment] of want.entries()) {
    if (segment === ">") return have.length > index;
    const other = have[index];
    if (other === undefined || other === ">") return false;
    if (segment !== "*" && segment !== other) return false;
  }
  return want.length === have.length;
}

/** Is there a channel that both patterns match? */
export function overlap(one: string, other: string): boolean {
  const [a, b] = [one.split("."), other.split(".")];
  for (const [index, segment] of a.entries()) {
    const beside = b[index];
    if (beside === undefined) return false;
    if (segment === ">" || beside === ">") return true;
    if (segment !== "*" && beside !== "*" && segment !== beside) return false;
  }
  return a.length === b.length;
}

/** The single entry of an ACL that contains the pattern, if one does (§9: one entry must). */
export function containedIn(acl: readonly string[], pattern: string): string | undefined {
  return acl.find((entry) => contains(entry, pattern));
}

/** The same list without what another entry contains, sorted: one spelling for one set of channels. */
export function minimalList(acl: readonly string[]): string[] {
  return [...new Set(acl)]
    .filter((entry) => !acl.some((other) => other !== entry && contains(other, entry)))
    .toSorted();
}

/** Is the concrete channel readable or writable under this ACL? */
export function covers(acl: readonly string[], channel: string): boolean {
  return acl.some((entry) => matches(entry, channel));
}

function show(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
