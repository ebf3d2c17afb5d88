/** `endpoint-assign`: the operator gives a name under somebody's domain to an owner, for good (§13.2). */
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { EndpointAssignAnswer, EndpointAssignArgs } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { z } from "zod";
import type { SpaceContext } from "../context.ts";
import { demandForeign } from "./foreign.ts";

export async function endpointAssign(
  { serving }: Pick<SpaceContext, "serving">,
  { principal: by }: Caller,
  { endpoint, owner: text }: z.infer<typeof EndpointAssignArgs>,
): Promise<z.infer<typeof EndpointAssignAnswer>> {
  demandForeign(endpoint);
  if (serving === undefined) {
    throw new CotalError(ErrorCode.FailedPrecondition, "an open space proves nobody's identity: names have no owner", {
      outcome: Outcome.NotExecuted,
      next: "register the endpoint; anybody may",
    });
  }
  const owner = serving.ownerOf(text);
  await serving.ledger.assign({ endpoint, owner, by });
  return { endpoint, owner };
}
