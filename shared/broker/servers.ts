/**
 * Which servers the broker is made of, and whether these are all.
 *
 * Invariants
 * 1. The set is proved by what the servers say of themselves: each knows as many active ones as have
 *    answered, and so does the JetStream group of a cluster, from which nobody goes but by an operator's
 *    word: he takes it out, or starts another one under its name. A server that died or can't be reached is
 *    missing from the answers and not from those counts: one that crashed is counted as active for two and a
 *    half to four minutes (nats-server 2.14), so nothing is proved meanwhile, even if it is back.
 * 2. A server without JetStream is in no group: while it is heard nothing is proved, and once it is silent for minutes
 *    nobody misses it. So nobody may be connected to such a one whose end is proved by the set (`isMissed`).
 * 3. A broker that reaches beyond one cluster is not proved: over a gateway nobody counts.
 */
import { z } from "zod";
import { sys } from "../protocol/base/broker-subjects.ts";
import { type Answered, type Gather, readAnswer } from "./gather.ts";

export type Server = { readonly id: string; readonly name: string };
export type Servers = {
  readonly servers: readonly Server[];
  /** What keeps them from being all; `undefined` if it is proved that they are. */
  readonly gap: string | undefined;
};

const Stats = z.looseObject({
  server: z.looseObject({ id: z.string(), name: z.string(), cluster: z.string().optional() }),
  statsz: z.looseObject({
    active_servers: z.int().optional(),
    gateways: z.array(z.unknown()).optional(),
    jetstream: z.looseObject({ meta: z.looseObject({ cluster_size: z.int() }).optional() }).optional(),
  }),
});
type Stats = z.infer<typeof Stats>;

export async function serversOf(gather: Gather): Promise<Servers> {
  const answers = await gather(sys.ping("STATSZ"), "", isWhole);
  const stats = answers.map(statsOf);
  const known = new Map(stats.flatMap((one) => (one === undefined ? [] : [[one.server.id, one] as const])));
  const servers = [...known.values()].map(({ server: { id, name } }) => ({ id, name }));
  const unread = stats.includes(undefined) ? "the answer of a server can't be read" : undefined;
  return { servers, gap: unread ?? gapOf([...known.values()]) };
}

const statsOf = (answer: Answered): Stats | undefined => readAnswer(answer, (one) => Stats.parse(one.json()));

/**
 * Would that server be missed if it could not be reached? `false` for one of a cluster that its JetStream group does
 * not count: the others forget it after minutes, while whoever is connected to it still is. `undefined` if it does not say.
 */
export async function isMissed(gather: Gather, serverId: string): Promise<boolean | undefined> {
  let missed: boolean | undefined;
  await gather(sys.ping("STATSZ"), "", (answers) => {
    const said = answers.map(statsOf).find((one) => one?.server.id === serverId);
    if (said !== undefined) missed = said.server.cluster === undefined || said.statsz.jetstream?.meta !== undefined;
    return said !== undefined;
  });
  return missed;
}

/** As many as they say there are: nobody else is waited for. */
function isWhole(answers: readonly Answered[]): boolean {
  const stats = answers.map(statsOf);
  const ids = new Set(stats.map((one) => one?.server.id));
  return stats.every((one) => one?.statsz.active_servers !== undefined && one.statsz.active_servers <= ids.size);
}

const RULES: readonly ((stats: readonly Stats[]) => string | undefined)[] = [
  ({ length }) => (length === 0 ? "no server of the broker says who is connected" : undefined),
  (stats) => {
    const silent = stats.find(({ statsz }) => statsz.active_servers === undefined);
    return silent === undefined ? undefined : `server ${silent.server.name} does not say how many servers there are`;
  },
  (stats) => {
    const most = Math.max(...stats.map(({ statsz }) => statsz.active_servers ?? 0));
    return most === stats.length ? undefined : `${most} servers are known to be active, and ${stats.length} answered`;
  },
  (stats) =>
    stats.some(({ statsz }) => (statsz.gateways ?? []).length > 0)
      ? "the broker has gateways to other clusters, where nobody counts the servers"
      : undefined,
  (stats) => {
    const isCluster = stats.length > 1 || stats.some(({ server }) => server.cluster !== undefined);
    if (!isCluster) return undefined;
    const sizes = stats.map(({ statsz }) => statsz.jetstream?.meta?.cluster_size);
    if (sizes.includes(undefined)) return "a server of the cluster does not belong to its JetStream group";
    const wrong = sizes.find((size) => size !== stats.length);
    return wrong === undefined
      ? undefined
      : `the JetStream group of the cluster has ${wrong} servers, and ${stats.length} answered`;
  },
];

function gapOf(stats: readonly Stats[]): string | undefined {
  for (const rule of RULES) {
    const gap = rule(stats);
    if (gap !== undefined) return gap;
  }
  return undefined;
}
