/**
 * Issued authority and derived credentials, as whoever mints them asks the plane (§13.15, §13.1): the one commit path of
 * their rows.
 *
 * Invariants
 * 1. The plane writes, for its own space; asking what is issued needs none.
 * 2. What is issued to an actor names the grant that its ceiling was made from, so a narrowing ends it.
 * 3. A taking back has succeeded when nothing of it is good any more and every connection of its holders from before is
 *    proved ended; until then it throws, what is denied stays denied, and asked again it goes on.
 *
 * No door leads here yet: managers, redemptions and the workflow host bring theirs.
 */
import { type DerivedEntry, enterDerived } from "../../../shared/ledger/derived.ts";
import { holdersOf } from "../../../shared/ledger/family.ts";
import { type IssueRequest, issue, renew } from "../../../shared/ledger/issuance.ts";
import { retireIssuance, revokeHandle } from "../../../shared/ledger/issuance-end.ts";
import { type Resolved, callerAuthority } from "../../../shared/ledger/resolve-issued.ts";
import { ErrorCode, badRequest } from "../../../shared/protocol/base/errors.ts";
import { dotForm, principal, samePrincipal } from "../../../shared/protocol/base/principals.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { isSameRef } from "../../../shared/protocol/ledger/issued-rows.ts";
import type { CredentialRow } from "../../../shared/protocol/ledger/rows.ts";
import type { HandleSource, IssuedRef } from "../../../shared/protocol/ledger/source-rows.ts";
import { readActor } from "./actor-reads.ts";
import { endHolders } from "./holders.ts";
import { type PlaneParts, demandPlane, refusal, settled } from "./parts.ts";

export type Issuance = {
  /** The credential may leave once this resolves. */
  readonly issue: (request: IssueRequest) => Promise<void>;
  /** Hands back what it is issued under now: as before for the same ceiling, else under `next`. */
  readonly renew: (request: IssueRequest & { readonly next: string }) => Promise<IssuedRef>;
  /** What a caller may do now, named by the subject of his request. */
  readonly resolve: (caller: Caller) => Promise<Resolved>;
  /** One issuance and whatever was cut from it. */
  readonly withdraw: (ref: IssuedRef) => Promise<void>;
  /** A credential that is redeemed under handles may leave once this resolves. */
  readonly redeem: (entry: DerivedEntry) => Promise<void>;
  readonly revokeHandle: (handle: HandleSource) => Promise<void>;
};

export function createIssuance(parts: PlaneParts): Issuance {
  const { ledger, space } = parts;
  const writing = async <T>(run: () => Promise<T>): Promise<T> => {
    await demandPlane(parts);
    return settled(parts, run);
  };
  const ofSpace = ({ space: named }: IssuedRef): void => {
    if (named !== space) throw badRequest("that is issued in another space", "ask the auth service of that space");
  };
  const takenBack = async (run: () => Promise<readonly CredentialRow[]>): Promise<void> =>
    endHolders(parts, holdersOf(await writing(run)));
  return {
    issue: async (request) => {
      ofSpace(request.ref);
      await demandGrantNamed(parts, request);
      await writing(() => issue(ledger, request));
    },
    renew: async (request) => {
      ofSpace(request.ref);
      await demandGrantNamed(parts, request);
      const now = await writing(() => renew(ledger, request));
      // What it was issued before is over, and its holder may be connected by it.
      if (!isSameRef(now, request.ref)) await endHolders(parts, [principal(now.owner, now.actor)]);
      return now;
    },
    resolve: (caller) => callerAuthority(ledger, space, caller, Math.floor(parts.now() / 1000)),
    withdraw: async (ref) => {
      ofSpace(ref);
      await takenBack(() => retireIssuance(ledger, ref, `withdrawn-${ref.generation}`));
    },
    redeem: (entry) => writing(() => enterDerived(ledger, entry)),
    revokeHandle: (handle) => takenBack(() => revokeHandle(ledger, handle)),
  };
}

/** Whoever made the ceiling says of which grant: it alone knows what it has read. A static space grants nobody by a row. */
async function demandGrantNamed({ ledger }: PlaneParts, { ref, sources }: IssueRequest): Promise<void> {
  const p = principal(ref.owner, ref.actor);
  const row = await readActor(ledger, p);
  if (row === undefined) return;
  const isNamed = sources.some((one) => one.kind === "grant" && samePrincipal(one, p) && one.revision === row.revision);
  if (isNamed) return;
  throw refusal(
    ErrorCode.FailedPrecondition,
    `what is issued to ${dotForm(p)} must name its grant as it stands now`,
    "read the grant, make the ceiling from it, and name its revision among the sources",
  );
}
