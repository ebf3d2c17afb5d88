/**
 * Is one connection of our own account still there? Asked of the servers themselves.
 *
 * A connection's number is never given twice while its server runs, and a server that starts anew is another one. So
 * "gone" is proved when that very server says that it has no such connection, or when these are proved to be all the
 * servers there are (`servers.ts`) and it is none of them. Anything else is unknown, and unknown is never "gone".
 */
import { z } from "zod";
import type { Connection } from "../../../shared/broker/connect.ts";
import { type Gather, gatherOver, readAnswer } from "../../../shared/broker/gather.ts";
import { isMissed, serversOf } from "../../../shared/broker/servers.ts";
import { sys } from "../../../shared/protocol/base/broker-subjects.ts";
import { type CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
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

/**
 * Throws unless each of these servers would be missed (`servers.ts`): of any other the silence could be taken for its end,
 * and whoever holds the plane through it for dead.
 */
export async function demandMissed(
  asking: Pick<Connection, "nc" | "inboxPrefix">,
  tuples: readonly Pick<ConnectionTuple, "serverId">[],
): Promise<void> {
  // A broker without a cluster is one server: there is nobody to forget it.
  if (asking.nc.info?.cluster === undefined) return;
  const gather = gatherOver(asking);
  const ids = [...new Set(tuples.map(({ serverId }) => serverId))];
  await Promise.all(
    ids.map(async (id) => {
      const missed = await isMissed(gather, id);
      if (missed === true) return;
      if (missed === undefined) throw untold(id);
      throw refusal(
        ErrorCode.FailedPrecondition,
        `server ${id} does not belong to the JetStream group of its cluster: nobody holds the plane through it`,
        "give the auth service servers with JetStream only (COTAL_SERVERS)",
      );
    }),
  );
}

const untold = (id: string): CotalError =>
  refusal(
    ErrorCode.Unavailable,
    `server ${id} does not say whether its cluster would miss it: nobody holds the plane through it`,
    "it is asked again; a broker that was started before the last cotal up can't say it, so start its servers again",
  );

const Answer = z.looseObject({
  server: z.looseObject({ id: z.string() }),
  data: z.looseObject({ connections: z.array(z.looseObject({ cid: z.number() })) }),
});

/** Whether that server has that connection; `undefined` if it does not say. */
async function wordOf(gather: Gather, serverId: string, cid: number): Promise<boolean | undefined> {
  let has: boolean | undefined;
  await gather(sys.ownConnections, JSON.stringify({ cid }), (answers) => {
    const said = readAnswer(answers.at(-1), (one) => Answer.parse(one.json()));
    if (said?.server.id !== serverId) return false;
    has = said.data.connections.some((one) => one.cid === cid);
    return true;
  });
  return has;
}

/** The connection as its server counts it; `undefined` while it is down. */
export function tupleOf({ info }: Pick<Connection["nc"], "info">, userNkey: string): ConnectionTuple | undefined {
  return info === undefined ? undefined : { serverId: info.server_id, cid: info.client_id, userNkey };
}
