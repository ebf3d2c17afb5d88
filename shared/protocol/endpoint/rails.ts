/**
 * The two rails of endpoint requests and replies (§13.2): `ep` for callers of always, `ep.v1` for issued
 * ones (§13.15), which carry their generation between UID and nonce.
 *
 * Invariants
 * 1. The caller decides the rail: one with a generation rides `ep.v1` and nothing else, one without
 *    rides `ep` and nothing else.
 * 2. The rail is told by the fourth token, which is `v1` or a route, never by counting.
 * 3. Every subject of a rail ends with its caller and the nonce.
 */
import { SPACE_TOKEN } from "../base/grammar.ts";
import type { Principal } from "../base/principals.ts";
import { ROOT, spaceToken } from "../base/subjects.ts";
import { form, splitSubject } from "./forms.ts";

/** The caller of a request: principal and lifecycle, forge-locked in the subject. */
export type Caller = {
  readonly principal: Principal;
  readonly uid: string;
  /** Of an issued caller only. */
  readonly generation?: string;
};

/** The caller's tokens, as every request and reply carries them. */
export type CallerTail = {
  readonly owner: string;
  readonly actor: string;
  readonly uid: string;
  readonly generation?: string;
};

/** How every request and reply ends. */
export type CallTail = CallerTail & { readonly nonce: string };

export const Rail = { Legacy: "ep", Versioned: "ep.v1" } as const;
export type Rail = (typeof Rail)[keyof typeof Rail];

const VERSION = "v1";

export function railOf(caller: { readonly generation?: string }): Rail {
  return caller.generation === undefined ? Rail.Legacy : Rail.Versioned;
}

/** `cotal.<space>.ep` or `cotal.<space>.ep.v1`, as tokens. */
export function railPrefix(space: string, rail: Rail): string[] {
  return [ROOT, spaceToken(space), rail];
}

/** What follows the prefix. `undefined` for a subject of no rail. */
export function splitRail(subject: string): { space: string; rail: Rail; rest: string[] } | undefined {
  const [root, space, kind, ...rest] = splitSubject(subject);
  if (root !== ROOT || space === undefined || !SPACE_TOKEN.test(space) || kind !== Rail.Legacy) return undefined;
  return rest[0] === VERSION
    ? { space, rail: Rail.Versioned, rest: rest.slice(1) }
    : { space, rail: Rail.Legacy, rest };
}

const CALLER = form("owner", "actor", "uid");
const GENERATION = form("generation");
const NONCE = form("nonce");
const TAIL = {
  [Rail.Legacy]: CALLER,
  [Rail.Versioned]: form("owner", "actor", "uid", "generation"),
} as const;

/** The caller's tokens; what a grant pins. */
export function callerTokens({ principal: { owner, actor }, uid, generation }: Caller): string[] {
  return [
    ...CALLER.write({ owner, actor, uid }),
    ...(generation === undefined ? [] : GENERATION.write({ generation })),
  ];
}

export function tailOf({ principal: { owner, actor }, uid, generation }: Caller, nonce: string): CallTail {
  return { owner, actor, uid, nonce, ...(generation === undefined ? {} : { generation }) };
}

/** The caller that a subject names: the only source of who asks. */
export function callerOf({ owner, actor, uid, generation }: CallerTail): Caller {
  return { principal: { owner, actor }, uid, ...(generation === undefined ? {} : { generation }) };
}

export function tailTokens(tail: CallTail): string[] {
  const { generation } = tail;
  const caller = generation === undefined ? CALLER.write(tail) : TAIL[Rail.Versioned].write({ ...tail, generation });
  return [...caller, ...NONCE.write(tail)];
}

/** The tokens before the nonce. */
export function readTail(tokens: readonly string[], rail: Rail): CallerTail | undefined {
  return TAIL[rail].read(tokens);
}
