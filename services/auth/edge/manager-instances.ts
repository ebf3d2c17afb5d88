/**
 * `POST /manager-instances` (§10): the managers of whoever signs in, as the ledger knows them.
 *
 * The same proof and the same checks as a selection. An entry says that an instance is registered, not that
 * it answers.
 *
 * Invariant: a read that fails is `unavailable`, never an empty list.
 */
import { z } from "zod";
import { ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import type { ManagerInstancesAnswer } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { ownerToken } from "../../../shared/trust/owner.ts";
import type { Authority } from "../plane/authority-type.ts";
import type { FaceRoute } from "./http.ts";
import { type InFlight, createInFlight } from "./in-flight.ts";
import type { IdentityProvider } from "./idp.ts";
import type { ProbingBudget } from "./probing-budget.ts";
import { type Answer, proofRefused, refusalOf, refuse } from "./refusals.ts";

export type ManagerInstancesOptions = {
  readonly space: string;
  readonly ownerSecret: Uint8Array;
  readonly idp: IdentityProvider;
  readonly authority: Pick<Authority, "managersOf">;
  readonly budget: ProbingBudget;
};

/** Each of them reads every gate of the space's managers. */
const MAX_LISTINGS = 32;

const Body = z.strictObject({ space: z.string(), idToken: z.string().min(1) });

type Settled = { readonly answer: Answer; readonly known: boolean };

export function managerInstances(options: ManagerInstancesOptions): FaceRoute["handle"] {
  const inFlight = createInFlight(MAX_LISTINGS);
  return async (body, peer) => {
    const settled = await inFlight.whole(() => list(body, inFlight, options));
    return options.budget(settled.answer, peer, "known" in settled && settled.known);
  };
}

async function list(
  body: unknown,
  inFlight: InFlight,
  { space, ownerSecret, idp, authority }: ManagerInstancesOptions,
): Promise<Settled> {
  const request = Body.safeParse(body).data;
  if (request?.space !== space) return { answer: MALFORMED, known: false };
  const proof = await idp.verify(request.idToken);
  if (!proof.ok) return { answer: proofRefused(proof.fault), known: false };
  const owner = ownerToken(ownerSecret, proof.person.issuer, proof.person.subject);
  const { answer } = await inFlight.ofOwner(owner, async () => ({ answer: await listOf(authority, owner) }));
  return { answer, known: true };
}

async function listOf(authority: ManagerInstancesOptions["authority"], owner: string): Promise<Answer> {
  try {
    const managers = await authority.managersOf(owner);
    const answer: ManagerInstancesAnswer = {
      managers: managers.map(({ instanceId, epoch, unfit }) =>
        unfit === undefined ? { instanceId, epoch, ready: true } : { instanceId, epoch, ready: false, reason: unfit },
      ),
    };
    return { status: 200, body: answer };
  } catch (cause) {
    const error = toCotalError(cause);
    // The face answers for a fault of ours, and tells its log.
    if (error.code === ErrorCode.Internal) throw cause;
    return refusalOf(error);
  }
}

const MALFORMED = refuse({
  code: ErrorCode.BadRequest,
  reason: "malformed",
  error: "the request lacks a field, names another space, or something that is not taken",
  next: 'send {"space", "idToken"} with the name of this space',
});
