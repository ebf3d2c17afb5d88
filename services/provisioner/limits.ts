/** History limits of a space (§8): one for chat, one for direct messages, one for the backstop. */
import type { z } from "zod";
import { historyLimits, setHistoryLimits } from "../../shared/broker/limits.ts";
import { previewLimits } from "../../shared/broker/limits-preview.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import type { SpaceNames } from "../../shared/protocol/base/names.ts";
import type {
  LimitStore,
  LimitsPreviewAnswer,
  LimitsSetArgs,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";

type LimitsChange = z.infer<typeof LimitsSetArgs>;

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
export async function limitsSet(context: SpaceContext, args: LimitsChange) {
  const stream = streamOf(context.names)[args.store];
  const { after } = await changeOf(context, stream, args);
  await setHistoryLimits(context.store, stream, after);
  return limitsShow(context);
}

/** Subjects of one answer. */
const MOST_TOLD = 100;

/** What the same change would remove now. Nothing is changed. */
export async function limitsPreview(context: SpaceContext, args: LimitsChange): Promise<LimitsPreviewAnswer> {
  const { store, names, subjects: own } = context;
  const stream = streamOf(names)[args.store];
  const { before, after } = await changeOf(context, stream, args);
  const filter = { chat: own.chatAll, dm: own.instAll, delivery: own.dlvAll }[args.store];
  const { subjects, whole } = await previewLimits(store, stream, after, { filter });
  const lead = filter.length - 1;
  return {
    store: args.store,
    before,
    after,
    messages: subjects.reduce((sum, { messages }) => sum + messages, 0),
    subjects: subjects.length,
    most: subjects
      .slice(0, MOST_TOLD)
      .map(({ subject, ...rest }) => ({ of: subject.slice(lead, lead + 300), ...rest })),
    whole,
  };
}

async function changeOf({ store }: SpaceContext, stream: string, { maxAgeSeconds, maxPerSubject }: LimitsChange) {
  if (maxAgeSeconds === undefined && maxPerSubject === undefined) {
    throw badRequest("nothing to set", "name an age, a count, or both; none takes a bound away");
  }
  const before = await historyLimits(store, stream);
  const after = {
    maxAgeSeconds: maxAgeSeconds === undefined ? before.maxAgeSeconds : maxAgeSeconds,
    maxPerSubject: maxPerSubject === undefined ? before.maxPerSubject : maxPerSubject,
  };
  return { before, after };
}
