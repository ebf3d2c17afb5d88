/**
 * The end of a lifecycle on an operator's word: ledger first, then the broker's own refusal (by the
 * trust program, between the two steps), then exact clean-up (§13.1).
 *
 * The second step holds a credential that can remove what this one lifecycle left and nothing else.
 */
import { deleteConsumer, streamState } from "../../shared/broker/ensure.ts";
import { isMarker, leaderLast } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { bucketStream, dlvDurable, dmDurable } from "../../shared/protocol/base/names.ts";
import { type Principal, dotForm, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import type {
  DeprovisionAnswer,
  DeprovisionArgs,
  DeprovisionCompleteArgs,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type SpaceContext, staticAuthority } from "./context.ts";
import { isDaemon } from "./self.ts";
import type { z } from "zod";

export async function deprovision(
  context: SpaceContext,
  args: z.infer<typeof DeprovisionArgs>,
): Promise<z.infer<typeof DeprovisionAnswer>> {
  const { keys, ledger } = staticAuthority(context);
  const who = principal(args.owner, args.actor);
  if (isDaemon(keys.ownerSecret, context.space, who)) throw ofTheSpace(who);
  const { uid, opId, users } = await beginRetirement(ledger, who, `retire-${drawNonce(context.random)}`);
  return { uid, opId, users: [...users] };
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
): Promise<object> {
  const authority = staticAuthority(context);
  const who = principal(args.owner, args.actor);
  const { chat, dm, dlv, task } = context.names;
  const last = async (stream: string) => [stream, (await streamState(context.store, stream)).lastSeq] as const;
  const streams = Object.fromEntries(await Promise.all([chat, dm, dlv, task].map(last)));
  await completeRetirement(authority.ledger, who, args.uid, args.opId, streams, async () => {
    const cleaner = await authority.cleaner({ principal: who, uid: args.uid });
    try {
      const { effect } = context.writer;
      await effect(() => deleteConsumer(cleaner.nc, dm, dmDurable(who, args.uid)));
      await effect(() => deleteConsumer(cleaner.nc, dlv, dlvDurable(who, args.uid)));
      await effect(() => removeAcl(context, cleaner.nc, ledgerKey.acl(who, args.uid)));
    } finally {
      await cleaner.drain();
    }
  });
  return {};
}

/** A delete marker pinned to the row that was read; a marker that stands already is the end. */
async function removeAcl(context: SpaceContext, cleaner: SpaceContext["store"], key: string): Promise<void> {
  const { acl } = context.names.bucket;
  const stream = bucketStream(acl);
  const entry = await leaderLast(context.store, stream, kvKey(acl, key));
  if (entry === undefined || isMarker(entry.headers)) return;
  await createWriter({ nc: cleaner }).cas(stream, kvKey(acl, key), new Uint8Array(), entry.seq, {
    headers: { [Header.KvOperation]: "DEL" },
  });
}
