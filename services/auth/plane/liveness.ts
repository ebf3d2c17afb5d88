/**
 * Is one connection of our own account still there? Asked of the servers themselves.
 *
 * A connection's number is never given twice while its server runs, and a server that starts anew is another one. So
 * "gone" is proved when that very server says that it has no such connection, or when these are proved to be all the
 * servers there are (`servers.ts`) and it is none of them. Anything else is unknown, and unknown is never "gone".
 */
import { z } from "zod";
import type { Connection } from "../../../shared/broker/connect.ts";
import { type Answered, type Gather, gatherOver } from "../../../shared/broker/gather.ts";
import { isMissed, serversOf } from "../../../shared/broker/servers.ts";
import { sys } from "../../../shared/protocol/base/broker-subjects.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import type { ConnectionTuple } from "../../../shared/protocol/ledger/actor-rows.ts";
import { refusal } from "./parts.ts";

/** `why`: what keeps it from being proved. */
export type Liveness =
  | { readonly kind: "live" }
  | { readonly kind: "gone" }
  | { readonly kind: "unknown"; readonly why: string };

export const LIVE: Liveness = { kind: "live" };
export const GONE: Liveness = { kind: "gone" };

/** What holds for a pair that stands or falls together: alive while one is, gone once both are. */
export function ofBoth(one: Liveness, other: Liveness): Liveness {
  const found = [one, other];
  return found.find(({ kind }) => kind === "live") ?? found.find(({ kind }) => kind === "unknown") ?? GONE;
}

export async function livenessOf(
  asking: Pick<Connection, "nc" | "inboxPrefix">,
  { serverId, cid }: Pick<ConnectionTuple, "serverId" | "cid">,
): Promise<Liveness> {
  const gather = gatherOver(asking);
  const { servers, gap } = await serversOf(gather);
  if (gap === undefined && !servers.some(({ id }) => id === serverId)) return GONE;
  const has = await wordOf(gather, serverId, cid);
  if (has === undefined) return { kind: "unknown", why: gap ?? `server ${serverId} did not list its connections` };
  return has ? LIVE : GONE;
}

/** Throws for a server whose silence could be taken for its end (`servers.ts`): a holder there could be taken for dead. */
export async function demandMissed(
  asking: Pick<Connection, "nc" | "inboxPrefix">,
  tuples: readonly Pick<ConnectionTuple, "serverId">[],
): Promise<void> {
  const gather = gatherOver(asking);
  const missed = await Promise.all(tuples.map(({ serverId }) => isMissed(gather, serverId)));
  const at = missed.indexOf(false);
  if (at === -1) return;
  throw refusal(
    ErrorCode.FailedPrecondition,
    `server ${tuples[at]?.serverId ?? ""} does not belong to the JetStream group of its cluster: nobody holds the plane through it`,
    "give the auth service servers with JetStream only (COTAL_SERVERS)",
  );
}

const Answer = z.looseObject({
  server: z.looseObject({ id: z.string() }),
  data: z.looseObject({ connections: z.array(z.looseObject({ cid: z.number() })) }),
});

/** Whether that server has that connection; `undefined` if it does not say. */
async function wordOf(gather: Gather, serverId: string, cid: number): Promise<boolean | undefined> {
  let has: boolean | undefined;
  await gather(sys.ownConnections, JSON.stringify({ cid }), (answers) => {
    const said = answerOf(answers.at(-1));
    if (said?.server.id !== serverId) return false;
    has = said.data.connections.some((one) => one.cid === cid);
    return true;
  });
  return has;
}

function answerOf(answer: Answered | undefined): z.infer<typeof Answer> | undefined {
  try {
    return answer === undefined ? undefined : Answer.parse(answer.json());
  } catch {
    return undefined;
  }
}

/** The connection as its server counts it; `undefined` while it is down. */
export function tupleOf({ info }: Pick<Connection["nc"], "info">, userNkey: string): ConnectionTuple | undefined {
  return info === undefined ? undefined : { serverId: info.server_id, cid: info.client_id, userNkey };
}
