/**
 * Builds the messages that a session sends (§5), checked before anything is published.
 *
 * Invariants
 * 1. Exactly one routing field; the sender is the session's principal; the id is fresh and can't be
 *    guessed (§5).
 * 2. A channel is concrete, a role is never rewritten, and a reserved subject is refused (§3).
 */
import { badRequest } from "../protocol/base/errors.ts";
import { concreteChannel } from "../protocol/base/channels.ts";
import { MAX_NAME_LENGTH } from "../protocol/base/grammar.ts";
import { type Principal, type RandomBytes, dotForm, drawNonce } from "../protocol/base/principals.ts";
import { RESERVED_PREFIXES, isReservedSubject, spaceSubjects } from "../protocol/base/subjects.ts";
import { spaceNames } from "../protocol/base/names.ts";
import { type CotalMessage, checkMessage } from "../protocol/chat/message.ts";
import { type Part, text } from "../protocol/chat/parts.ts";
import type { Identity } from "./identity.ts";

/** What a message says: a text, or parts. */
export type Content = string | readonly Part[];

export type MessageOptions = {
  /** Names of peers to wake; lowercased. With a text and no list, `@name` in the text counts. */
  readonly mentions?: readonly string[];
  readonly replyTo?: string;
  readonly contextId?: string;
};

export type Outgoing = {
  readonly id: string;
  readonly kind: "chat" | "dm" | "ask";
  readonly subject: string;
  readonly stream: string;
  readonly payload: string;
};

export type Composer = {
  readonly chat: (channel: string, content: Content, options?: MessageOptions) => Outgoing;
  readonly dm: (to: Principal, content: Content, options?: MessageOptions) => Outgoing;
  readonly ask: (role: string, content: Content, options?: MessageOptions) => Outgoing;
};

/** Most peers that one message may wake. */
export const MAX_MENTIONS = 64;
const MAX_CACHED_CHANNELS = 256;

export function createComposer(identity: Identity, random: RandomBytes, now: () => number): Composer {
  const subjects = spaceSubjects(identity.space);
  const names = spaceNames(identity.space);
  const from = {
    id: identity.id,
    name: identity.name,
    ...(identity.role === undefined ? {} : { role: identity.role }),
  };
  const channels = new Map<string, { readonly channel: string; readonly subject: string }>();
  const target = (given: string): { readonly channel: string; readonly subject: string } => {
    const known = channels.get(given);
    if (known !== undefined) return known;
    const channel = publishChannel(given);
    const entry = { channel, subject: subjects.chat(identity.principal, channel) };
    if (channels.size >= MAX_CACHED_CHANNELS) channels.clear();
    channels.set(given, entry);
    return entry;
  };
  const build = (route: Partial<CotalMessage>, content: Content, options: MessageOptions): CotalMessage => {
    const mentions = mentionsOf(content, options.mentions);
    const message: CotalMessage = {
      id: drawNonce(random),
      ts: now(),
      space: identity.space,
      from,
      ...route,
      ...(mentions.length === 0 ? {} : { mentions }),
      // Checked below, whatever a caller in plain JavaScript hands over.
      parts: typeof content === "string" ? [text(content)] : (content as Part[]),
      ...(options.replyTo === undefined ? {} : { replyTo: options.replyTo }),
      ...(options.contextId === undefined ? {} : { contextId: options.contextId }),
    };
    checkMessage(message);
    return message;
  };
  const out = (kind: Outgoing["kind"], subject: string, stream: string, message: CotalMessage): Outgoing => ({
    id: message.id,
    kind,
    subject,
    stream,
    payload: JSON.stringify(message),
  });
  return {
    chat: (given, content, options = {}) => {
      const { channel, subject } = target(given);
      return out("chat", subject, names.chat, build({ channel }, content, options));
    },
    dm: (to, content, options = {}) =>
      out("dm", subjects.inst(to, identity.principal), names.dm, build({ to: dotForm(to) }, content, options)),
    ask: (role, content, options = {}) =>
      out("ask", subjects.svc(role, identity.principal), names.task, build({ toService: role }, content, options)),
  };
}

/** A channel to publish to: concrete, and not an attempt at the broker's own subjects (§3). */
function publishChannel(given: string): string {
  if (typeof given !== "string") throw badRequest("the channel is not a text", "name one, such as team.backend");
  if (isReservedSubject(given)) {
    throw badRequest(
      `applications never publish under ${RESERVED_PREFIXES.join(" ")}`,
      "name a channel, such as team.backend",
    );
  }
  return concreteChannel(given);
}

function mentionsOf(content: Content, given: readonly string[] | undefined): string[] {
  const names = given ?? (typeof content === "string" ? namesIn(content) : []);
  const lower = [...new Set(names.map(mention))];
  if (lower.length > MAX_MENTIONS) {
    throw badRequest(`a message mentions at most ${MAX_MENTIONS} peers, and this has ${lower.length}`);
  }
  return lower;
}

function mention(name: unknown): string {
  if (typeof name !== "string") throw badRequest("a mention is not a string");
  const bare = (name.startsWith("@") ? name.slice(1) : name).toLowerCase();
  if (bare === "" || bare.length > MAX_NAME_LENGTH) throw badRequest("a mention is a name of 1 to 128 characters");
  return bare;
}

/** `@name` at the start of a word; an address such as a@b is none. */
const MENTION = /(?<![\p{L}\p{N}_@.-])@([\p{L}\p{N}_](?:[\p{L}\p{N}_-]{0,126}[\p{L}\p{N}_])?)/gu;

/** The names that a text mentions, at most as many as a message may carry. */
export function namesIn(content: string): string[] {
  if (!content.includes("@")) return [];
  const names = new Set<string>();
  for (const match of content.matchAll(MENTION)) {
    names.add((match[1] ?? "").toLowerCase());
    if (names.size === MAX_MENTIONS) break;
  }
  return [...names];
}
