/**
 * Removing chat history on somebody's word (supplement F, purger; §10 channel-purger): of one channel, or
 * of the space.
 *
 * What has been copied for a member already (§8 backstop) is that member's and stays. What is posted while
 * it runs may stay too: a purge removes what there is when the broker takes it. No daemon holds the power to
 * purge: a credential is made for each purge, and lives for minutes.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { z } from "zod";
import { apiRequest, numberIn } from "../../shared/broker/api.ts";
import { jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { ChannelPurgeArgs, PurgeAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";

type Purged = z.infer<typeof PurgeAnswer>;

export function channelPurge(context: SpaceContext, { channel }: z.infer<typeof ChannelPurgeArgs>): Promise<Purged> {
  return purge(context, { filter: spaceSubjects(context.space).chatRead(channel) });
}

export function historyPurge(context: SpaceContext): Promise<Purged> {
  return purge(context, {});
}

async function purge(context: SpaceContext, what: { readonly filter?: string }): Promise<Purged> {
  const { store, names } = context;
  if (context.purger === undefined) return run(store);
  const purger = await context.purger();
  try {
    return await run(purger.nc);
  } finally {
    await purger.drain();
  }

  async function run(nc: NatsConnection): Promise<Purged> {
    const answer = await apiRequest(nc, jsApi.streamPurge(names.chat), "removing history", what);
    return { removed: numberIn(answer, "purged") };
  }
}
