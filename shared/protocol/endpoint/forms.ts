/**
 * The tokens of the endpoint subjects, and forms: a fixed row of tokens that is written and read by
 * one table, so that the two can't disagree (§13.2).
 *
 * Invariants
 * 1. What a form writes it reads back as it was; what it would not write it does not read.
 * 2. Writing fails loudly, reading never throws.
 * 3. A form has one arity. Nothing here guesses from a count which form is meant.
 */
import {
  COMMAND_TOKEN,
  DIGEST,
  GENERATION,
  ID_TOKEN,
  LIFECYCLE_UID,
  MAX_SUBJECT_BYTES,
  OWNER_TOKEN,
  PRINCIPAL_TOKEN,
  REQUEST_NONCE,
  WHOLE_NUMBER,
} from "../base/grammar.ts";
import { digestHex } from "../base/canonical.ts";
import { badRequest } from "../base/errors.ts";
import { endpointName, endpointToken, isEndpointName } from "./names.ts";

type Token<T> = {
  /** `name` is for the refusal. */
  readonly write: (value: T, name: string) => string;
  readonly read: (token: string) => T | undefined;
};

/** A refusal shows no value: a nonce is a capability, and ids are not ours to print. */
function text(pattern: RegExp, shape: string): Token<string> {
  return {
    write: (value, name) => {
      // A caller in plain JavaScript may hand over anything, and `test(undefined)` reads "undefined".
      if (typeof value !== "string" || !pattern.test(value)) throw badRequest(`${name} is not ${shape}`);
      return value;
    },
    read: (token) => (pattern.test(token) ? token : undefined),
  };
}

function count(least: number): Token<number> {
  const isCount = (value: number) => Number.isSafeInteger(value) && value >= least;
  return {
    write: (value, name) => {
      if (!isCount(value)) throw badRequest(`${name} is not a whole number from ${least}`);
      return String(value);
    },
    read: (token) => {
      const value = WHOLE_NUMBER.test(token) ? Number(token) : Number.NaN;
      return isCount(value) ? value : undefined;
    },
  };
}

function oneOf<const T extends string>(words: readonly T[]): Token<T> {
  const read = (token: string) => words.find((word) => word === token);
  return {
    read,
    write: (value, name) => {
      if (read(value) === undefined) throw badRequest(`${name} is none of ${words.join(", ")}`);
      return value;
    },
  };
}

const id = text(ID_TOKEN, "1 to 64 letters, digits, _ or -");
const word = text(COMMAND_TOKEN, "1 to 32 of a-z, 0-9 and -");
const uid = text(LIFECYCLE_UID, "26 to 32 of a-z and 0-9");
const digest = text(DIGEST, "a digest, sha256: and 64 hex digits");

/** Every token by its name in §13.2. */
const TOKENS = {
  route: oneOf(["one", "all", "inst"]),
  endpoint: {
    write: endpointToken,
    read: (token: string) => {
      const read = endpointName(token);
      return isEndpointName(read) ? read : undefined;
    },
  },
  instanceId: uid,
  epoch: count(0),
  command: word,
  owner: text(OWNER_TOKEN, "an owner token"),
  actor: text(PRINCIPAL_TOKEN, "1 to 64 letters, digits or _"),
  uid,
  /** The lifecycle that work is bound to; `ep` where it is bound to none. */
  target: {
    write: (value: string, name: string) => (value === "ep" ? value : uid.write(value, name)),
    read: (token: string) => (token === "ep" ? token : uid.read(token)),
  },
  generation: text(GENERATION, "32 lower-case hex digits"),
  nonce: text(REQUEST_NONCE, "22 to 64 letters, digits, _ or -"),
  id,
  goalId: id,
  timerId: id,
  sessionId: id,
  /** Of a checkpoint. */
  token: id,
  pool: word,
  cluster: id,
  event: id,
  /** `<t>`: which step of a goal or checkpoint this is. */
  step: id,
  kind: id,
  sourceSeq: count(1),
  digest: {
    write: (value: string, name: string) => digestHex(digest.write(value, name)),
    read: (token: string) => digest.read(`sha256:${token}`),
  },
  timer: oneOf(["schedule", "armed", "fire"]),
  side: oneOf(["in", "out"]),
  fact: oneOf(["result", "bind"]),
} as const;

export type TokenName = keyof typeof TOKENS;
export type TokenValue<K extends TokenName> = (typeof TOKENS)[K] extends Token<infer T> ? T : never;
export type Values<K extends TokenName> = { readonly [Name in K]: TokenValue<Name> };

export type Form<K extends TokenName> = {
  readonly write: (values: Values<K>) => string[];
  /** `undefined` unless there are exactly as many tokens, each lawful in its place. */
  readonly read: (tokens: readonly string[]) => Values<K> | undefined;
};

export function form<K extends TokenName = never>(...names: readonly K[]): Form<K> {
  return {
    // The type of a value follows from its name; TypeScript can't see that for a union of names.
    write: (values) => names.map((name) => writeToken(name, values[name] as never)),
    read: (tokens) => {
      if (tokens.length !== names.length) return undefined;
      const values: Partial<Record<TokenName, string | number>> = {};
      let index = 0;
      for (const name of names) {
        const value = TOKENS[name].read(tokens[index] ?? "");
        if (value === undefined) return undefined;
        values[name] = value;
        index += 1;
      }
      return values as Values<K>;
    },
  };
}

/** One token, as a builder of grants needs it between wildcards. */
export function writeToken<K extends TokenName>(name: K, value: TokenValue<K>): string {
  return TOKENS[name].write(value as never, name);
}

/** Tokens as a subject, within the bound of every endpoint subject. */
export function joinSubject(tokens: readonly string[]): string {
  const subject = tokens.join(".");
  if (Buffer.byteLength(subject) > MAX_SUBJECT_BYTES) throw badRequest("the subject is longer than 1024 bytes");
  return subject;
}

/** The tokens of a subject that may be one of ours: bounded before anything looks at it. */
export function splitSubject(subject: string): string[] {
  return subject.length > MAX_SUBJECT_BYTES ? [] : subject.split(".");
}
