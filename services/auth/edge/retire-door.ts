/**
 * `POST /retire-lifecycle` (§13.1): the host's own door to the end of a lifecycle whose manager is gone.
 *
 * Invariants
 * 1. It is on the loopback face alone, under the capability of this start.
 * 2. It takes nobody's grant away: one that is not revoked at this very lifecycle is refused before anything is
 *    written. What it does then is the one operation that ends that lifecycle, whoever else has asked for it.
 */
import { z } from "zod";
import { ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { principal } from "../../../shared/protocol/base/principals.ts";
import { RetireLifecycleArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import { ExchangePath } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import type { ActorAdministration } from "../plane/authority-type.ts";
import type { FaceRoute } from "./http.ts";
import { createInFlight } from "./in-flight.ts";
import { type Answer, refusalOf, refuse } from "./refusals.ts";

export type RetireDoorOptions = {
  readonly space: string;
  readonly authority: Pick<ActorAdministration, "retireRevoked">;
};

/** Each of them may wait for the proof that nobody is connected. */
const MAX_ENDS = 16;

const Body = z.strictObject({ space: z.string(), ...RetireLifecycleArgs.shape });

export function retireDoor({ space, authority }: RetireDoorOptions): FaceRoute {
  const inFlight = createInFlight(MAX_ENDS);
  const retire = async (body: unknown): Promise<Answer> => {
    const asked = Body.safeParse(body).data;
    if (asked?.space !== space) return MALFORMED;
    try {
      return {
        status: 200,
        body: await authority.retireRevoked(principal(asked.owner, asked.actor), asked.lifecycleUid),
      };
    } catch (cause) {
      const error = toCotalError(cause);
      // The face answers for a fault of ours, and tells its log.
      if (error.code === ErrorCode.Internal) throw cause;
      return refusalOf(error);
    }
  };
  return {
    method: "POST",
    path: ExchangePath.RetireLifecycle,
    guarded: true,
    handle: async (body) => (await inFlight.whole(async () => ({ answer: await retire(body) }))).answer,
  };
}

const MALFORMED = refuse({
  code: ErrorCode.BadRequest,
  reason: "malformed",
  error: "the request lacks a field, names another space, or something that is not taken",
  next: 'send {"space", "owner", "actor", "lifecycleUid"} with the name of this space',
});
