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

const Body = z.strictObject({ space: z.string(), idToken: z.string().min(1) });

type Settled = { readonly answer: Answer; readonly known: boolean };

export function managerInstances(options: ManagerInstancesOptions): FaceRoute["handle"] {
  return async (body, peer) => {
    const { answer, known } = await list(body, options);
    return options.budget(answer, peer, known);
  };
}

async function list(body: unknown, { space, ownerSecret, idp, authority }: ManagerInstancesOptions): Promise<Settled> {
  const request = Body.safeParse(body).data;
  if (request?.space !== space) return { answer: MALFORMED, known: false };
  const proof = await idp.verify(request.idToken);
  if (!proof.ok) return { answer: proofRefused(proof.fault), known: false };
  const { issuer, subject } = proof.person;
  try {
    const managers = await authority.managersOf(ownerToken(ownerSecret, issuer, subject));
    const answer: ManagerInstancesAnswer = {
      managers: managers.map(({ instanceId, epoch, unfit }) =>
        unfit === undefined ? { instanceId, epoch, ready: true } : { instanceId, epoch, ready: false, reason: unfit },
      ),
    };
    return { answer: { status: 200, body: answer }, known: true };
  } catch (cause) {
    return { answer: refusalOf(toCotalError(cause)), known: true };
  }
}

const MALFORMED = refuse({
  code: ErrorCode.BadRequest,
  reason: "malformed",
  error: "the request lacks a field, names another space, or something that is not taken",
  next: 'send {"space", "idToken"} with the name of this space',
});
