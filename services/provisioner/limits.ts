/** History limits of a space (§8): one for chat, one for direct messages, one for the backstop. */
import type { z } from "zod";
import { historyLimits, setHistoryLimits } from "../../shared/broker/limits.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import type { SpaceNames } from "../../shared/protocol/base/names.ts";
import type { LimitStore, LimitsSetArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";

const streamOf = (names: SpaceNames): Readonly<Record<LimitStore, string>> => ({
  chat: names.chat,
  dm: names.dm,
  delivery: names.dlv,
});

export async function limitsShow({ store, names }: SpaceContext) {
  const streams = streamOf(names);
  const [chat, dm, delivery] = await Promise.all([
    historyLimits(store, streams.chat),
    historyLimits(store, streams.dm),
    historyLimits(store, streams.delivery),
  ]);
  return { chat, dm, delivery };
}

/** A part that is not named stays as it is; lowering one removes what lies past it at once. */
export async function limitsSet(context: SpaceContext, args: z.infer<typeof LimitsSetArgs>) {
  if (args.maxAgeSeconds === undefined && args.maxPerSubject === undefined) {
    throw badRequest("nothing to set", "name an age, a count, or both; none takes a bound away");
  }
  const stream = streamOf(context.names)[args.store];
  const now = await historyLimits(context.store, stream);
  await setHistoryLimits(context.store, stream, {
    maxAgeSeconds: args.maxAgeSeconds === undefined ? now.maxAgeSeconds : args.maxAgeSeconds,
    maxPerSubject: args.maxPerSubject === undefined ? now.maxPerSubject : args.maxPerSubject,
  });
  return limitsShow(context);
}
