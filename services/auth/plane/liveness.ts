/**
 * Is one connection of our own account still there? Asked of the servers themselves.
 *
 * A connection's number is never given twice while its server runs. So "gone" is proved when that very
 * server says that it has no such connection; or when it does not run any more, which a broker of one
 * server proves by being another one. Anything else is unknown, and unknown is never "gone".
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { sys } from "../../../shared/protocol/base/broker-subjects.ts";
import type { ConnectionTuple } from "../../../shared/protocol/ledger/actor-rows.ts";

export type Liveness = "live" | "gone" | "unknown";

/** How long servers may take, and how many are heard. */
const ANSWER_MS = 1000;
const QUIET_MS = 300;
const MOST_SERVERS = 256;

const Answer = z.looseObject({
  server: z.looseObject({ id: z.string() }),
  data: z.looseObject({ connections: z.array(z.looseObject({ cid: z.number() })) }),
});

export async function livenessOf(nc: NatsConnection, { serverId, cid }: ConnectionTuple): Promise<Liveness> {
  const info = nc.info;
  if (info === undefined) return "unknown";
  try {
    const answers = await nc.requestMany(sys.ownConnections, JSON.stringify({ cid }), {
      strategy: "stall",
      maxWait: ANSWER_MS,
      stall: QUIET_MS,
      maxMessages: MOST_SERVERS,
    });
    for await (const message of answers) {
      const answer = Answer.safeParse(message.json()).data;
      if (answer?.server.id !== serverId) continue;
      return answer.data.connections.some((one) => one.cid === cid) ? "live" : "gone";
    }
  } catch {
    return "unknown";
  }
  // Only a broker without a cluster is the whole broker.
  return info.cluster === undefined && info.server_id !== serverId ? "gone" : "unknown";
}

/** The connection as its server counts it; `undefined` while it is down. */
export function tupleOf(nc: NatsConnection, userNkey: string): ConnectionTuple | undefined {
  const { info } = nc;
  return info === undefined ? undefined : { serverId: info.server_id, cid: info.client_id, userNkey };
}
