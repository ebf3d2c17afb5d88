/**
 * How many memberships there may be: a group's writer holds all rows of its members in memory, also those that were
 * left, and reads them again after every death. What somebody could make grow without end would end every process that
 * takes the group over (decision 45).
 */
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import type { Held } from "./cover.ts";

/** Of one lifecycle. A channel has up to 4,096 characters. */
export const OF_A_LIFECYCLE: Held = { rows: 4096, characters: 262_144 };
/** Of all lifecycles of one owner in a group: some 60 MiB. */
export const OF_AN_OWNER: Held = { rows: 65_536, characters: 8_388_608 };

/** Why no row for this pattern may be added; nothing where there is room. */
export function whyNoRoom(
  { own, owners }: { readonly own: Held; readonly owners: Held },
  pattern: string,
): CotalError | undefined {
  if (!fits(own, pattern, OF_A_LIFECYCLE)) {
    return full(
      `a lifecycle has at most ${OF_A_LIFECYCLE.rows} memberships, of ${OF_A_LIFECYCLE.characters} characters together`,
      "join a family of channels in place of each one",
    );
  }
  if (fits(owners, pattern, OF_AN_OWNER)) return undefined;
  return full(
    `the members of one owner have at most ${OF_AN_OWNER.rows} memberships in a member group`,
    "join families of channels in place of each one; the operator can make more groups: cotal groups set",
  );
}

const fits = ({ rows, characters }: Held, pattern: string, most: Held): boolean =>
  rows < most.rows && characters + pattern.length <= most.characters;

function full(message: string, next: string): CotalError {
  return new CotalError(ErrorCode.ResourceExhausted, message, { outcome: Outcome.NotExecuted, next });
}
