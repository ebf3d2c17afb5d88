/**
 * Authorization modes and the target block of a targeted request (§13.2).
 *
 * Invariants
 * 1. A block begins with one of seven reserved words (decision H5). An owner token is never such a word,
 *    so the token after the command tells a targeted form from an untargeted one.
 * 2. The word says how many target tokens follow; nothing is told by counting.
 * 3. In a grant only `any` and `ledger` may leave the target's owner open, and nothing else of a target.
 */
import { badRequest } from "../base/errors.ts";
import { form, writeToken } from "./forms.ts";

export const AuthzMode = {
  /** The target is the caller. */
  Self: "self",
  /** An actor of one owner. */
  Owner: "owner",
  /** Anyone's actor: for operators only. */
  Any: "any",
  /** An actor that the caller spawned; the handler checks it afresh. */
  Child: "child",
  /** What the authorization ledger allows; the handler reads it afresh. */
  Ledger: "ledger",
  /** One exact incarnation, by a redeemed handle. */
  Handle: "handle",
  /** One exact incarnation, by the profile that owns the command. */
  Exact: "exact",
} as const;
export type AuthzMode = (typeof AuthzMode)[keyof typeof AuthzMode];

const { Self, Owner, Any, Child, Ledger, Handle, Exact } = AuthzMode;

type OwnerMode = typeof Owner | typeof Any | typeof Child | typeof Ledger;
type TripleMode = typeof Handle | typeof Exact;

/** The target tokens of a subject. */
export type TargetBlock =
  | { readonly mode: typeof Self }
  | { readonly mode: OwnerMode; readonly owner: string }
  | { readonly mode: TripleMode; readonly owner: string; readonly actor: string; readonly uid: string };

const OWNER = form("owner");
const TRIPLE = form("owner", "actor", "uid");

/** How many target tokens each mode pins. */
const ARITY: Readonly<Record<AuthzMode, 0 | 1 | 3>> = {
  [Self]: 0,
  [Owner]: 1,
  [Any]: 1,
  [Child]: 1,
  [Ledger]: 1,
  [Handle]: 3,
  [Exact]: 3,
};

function isAuthzMode(token: string | undefined): token is AuthzMode {
  return token !== undefined && Object.hasOwn(ARITY, token);
}

/** True where subject and body both name the target in full. */
export function isTriple(block: TargetBlock): block is Extract<TargetBlock, { mode: TripleMode }> {
  return ARITY[block.mode] === 3;
}

export function blockTokens(block: TargetBlock | undefined): string[] {
  if (block === undefined) return [];
  if (!isAuthzMode(block.mode)) throw badRequest("the mode of the target is none of the seven");
  if (block.mode === Self) return [block.mode];
  return [block.mode, ...(isTriple(block) ? TRIPLE.write(block) : OWNER.write(block))];
}

const OPEN_OWNER: ReadonlySet<AuthzMode> = new Set([Any, Ledger]);

/** The same in a grant, where the owner may be `*` (invariant 3). */
export function grantBlockTokens(block: TargetBlock | undefined): string[] {
  if (block === undefined || !OPEN_OWNER.has(block.mode) || !("owner" in block)) return blockTokens(block);
  return [block.mode, block.owner === "*" ? "*" : writeToken("owner", block.owner)];
}

/** Takes the block off the tokens after a command. `undefined` for a block that is not whole. */
export function takeBlock(
  tokens: readonly string[],
): { readonly target?: TargetBlock; readonly rest: readonly string[] } | undefined {
  const [mode] = tokens;
  if (!isAuthzMode(mode)) return { rest: tokens };
  const end = 1 + ARITY[mode];
  const target = readBlock(mode, tokens.slice(1, end));
  return target === undefined ? undefined : { target, rest: tokens.slice(end) };
}

function readBlock(mode: AuthzMode, tokens: readonly string[]): TargetBlock | undefined {
  switch (mode) {
    case Self:
      return { mode };
    case Handle:
    case Exact: {
      const triple = TRIPLE.read(tokens);
      return triple === undefined ? undefined : { mode, ...triple };
    }
    case Owner:
    case Any:
    case Child:
    case Ledger: {
      const owner = OWNER.read(tokens);
      return owner === undefined ? undefined : { mode, ...owner };
    }
  }
}
