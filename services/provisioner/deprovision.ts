/**
 * The end of a lifecycle on an operator's word: ledger first, then the broker's own refusal (by the
 * trust program, between the two steps), then exact clean-up (§13.1).
 *
 * The second step holds a credential that can remove what this one lifecycle left and nothing else.
 */
import { frontiersOf, removeRemains } from "../../shared/broker/lifecycle-remains.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import type {
  DeprovisionAnswer,
  DeprovisionArgs,
  DeprovisionCompleteArgs,
  Done,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { staticOwner } from "../../shared/trust/owner.ts";
import { type SpaceContext, staticAuthority } from "./context.ts";
import { isDaemon } from "../../shared/ledger/self.ts";
import type { z } from "zod";

export async function deprovision(
  context: SpaceContext,
  args: z.infer<typeof DeprovisionArgs>,
): Promise<z.infer<typeof DeprovisionAnswer>> {
  const { keys, ledger } = staticAuthority(context);
  const who = whoOf(keys.ownerSecret, args);
  if (isDaemon(keys.ownerSecret, context.space, who)) throw ofTheSpace(who);
  const { uid, opId, users } = await beginRetirement(ledger, who, `retire-${drawNonce(context.random)}`);
  return { principal: dotForm(who), uid, opId, users: [...users] };
}

/** The owner as a mint takes it: a token, or a label. */
function whoOf(secret: Uint8Array, { owner, actor }: z.infer<typeof DeprovisionArgs>): Principal {
  return principal(staticOwner(secret, owner), actor);
}

function ofTheSpace(who: Principal): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `${dotForm(who)} is a daemon of this space`, {
    outcome: Outcome.NotExecuted,
    next: "the space would never be served again; stop the daemon instead",
  });
}

export async function deprovisionComplete(
  context: SpaceContext,
  args: z.infer<typeof DeprovisionCompleteArgs>,
): Promise<z.infer<typeof Done>> {
  const authority = staticAuthority(context);
  const who = whoOf(authority.keys.ownerSecret, args);
  const { space, store, writer } = context;
  const streams = await frontiersOf(store, space);
  await completeRetirement(authority.ledger, who, args.uid, args.opId, streams, async () => {
    const cleaner = await authority.cleaner({ principal: who, uid: args.uid });
    try {
      await removeRemains(store, cleaner.nc, writer, { space, principal: who, uid: args.uid });
    } finally {
      await cleaner.drain();
    }
  });
  return {};
}
