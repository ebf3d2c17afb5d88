/**
 * What the trust program asks of the broker through the system account: take an account's claims,
 * show each server's limits, show who is connected.
 *
 * Invariants
 * 1. An account counts as pushed only when the broker returns exactly the JWT that was signed: its
 *    store accepts a self-signed one over the good one (measured).
 * 2. Limits are asserted on every server that answers; a server below them refuses (supplement H).
 * 3. Nobody counts as gone because nobody answered, or because a list was cut short.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { type ServerLimits, limitFaults } from "../../shared/grants/gates.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { gatherOver } from "../../shared/broker/gather.ts";
import { serversOf } from "../../shared/broker/servers.ts";
import type { Credential } from "../../shared/trust/creds.ts";

/** A broker that starts beside this program is waited for. */
const STARTING_ATTEMPTS = 5;
/** So is a cluster whose servers still come together, and an account that still travels between them. */
const FORMING_MS = 10_000;
const LOOK_AGAIN_MS = 250;
/** Who only looks says soon that there is nothing to see. */
export const LOOKING_ATTEMPTS = 2;

/** Opens a short-lived system-account connection. */
export function connectSystem(
  server: string,
  credential: Credential,
  attempts = STARTING_ATTEMPTS,
): Promise<Connection> {
  return openConnection({
    servers: [server],
    authenticator: { jwt: () => credential.jwt, sign: credential.sign },
    inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
    name: "cotal trust",
    reconnect: { kind: "bounded", attempts },
  });
}

const ClaimsAnswer = z.looseObject({
  data: z.looseObject({ code: z.number() }).optional(),
  error: z.looseObject({ description: z.string().optional() }).optional(),
});

/** Pushes one account and proves that the broker holds exactly this JWT. */
export async function pushAccount(connection: Connection, account: string, jwt: string): Promise<void> {
  const answer = await connection.nc.request(sys.claimsUpdate, jwt, { timeout: 5000 });
  const parsed = ClaimsAnswer.safeParse(answer.json());
  if (!parsed.success || parsed.data.data?.code !== 200) {
    throw new CotalError(ErrorCode.FailedPrecondition, "the broker refused the account's claims", {
      next: "check that this state folder belongs to the broker that is running",
    });
  }
  // Any server of a cluster may answer, and one that the claims have not reached yet answers too.
  const held = await lookingUntil(
    async () => (await connection.nc.request(sys.claimsLookup(account), undefined, { timeout: 5000 })).string(),
    (text) => text === jwt,
  );
  if (held !== jwt) {
    throw new CotalError(ErrorCode.Conflict, "the broker holds other claims for this account than were signed", {
      next: "another operator's tool may write to the same broker; find it, then run this again",
    });
  }
}

export type ServerFacts = ServerLimits & {
  readonly name: string;
  readonly version: string;
  /** Bytes of its store, how many it may have, and after how long they are on the disk for certain; absent without JetStream. */
  readonly store?: { readonly used: number; readonly most: number; readonly syncSeconds: number };
};

/** `gap`: why these may not be all the servers there are; `undefined` if it is proved that they are. */
export type AllFacts = { readonly servers: readonly ServerFacts[]; readonly gap: string | undefined };

const Varz = z.looseObject({
  server: z.looseObject({ name: z.string(), ver: z.string() }),
  data: z.looseObject({
    max_control_line: z.number().optional(),
    max_payload: z.number(),
    auth_timeout: z.number(),
    jetstream: z
      .looseObject({
        config: z
          .looseObject({
            max_storage: z.number().optional(),
            /** Nanoseconds; beside `sync_always` it says nothing. */
            sync_interval: z.number().optional(),
            sync_always: z.boolean().optional(),
          })
          .optional(),
        stats: z.looseObject({ storage: z.number().optional() }).optional(),
      })
      .optional(),
  }),
});

/** The limits of every server, and whether it is every one. */
export async function serverFacts(connection: Connection): Promise<AllFacts> {
  const [servers, { gap }] = await Promise.all([answering(connection), serversOf(gatherOver(connection))]);
  return { servers, gap };
}

async function answering(connection: Connection, waitMs = 1500): Promise<ServerFacts[]> {
  const answers = await connection.nc.requestMany(sys.ping("VARZ"), undefined, {
    strategy: "stall",
    maxWait: waitMs,
    stall: 300,
  });
  const facts: ServerFacts[] = [];
  for await (const answer of answers) {
    const varz = Varz.parse(answer.json());
    facts.push({
      name: varz.server.name,
      version: varz.server.ver,
      maxControlLine: varz.data.max_control_line ?? 4096,
      maxPayload: varz.data.max_payload,
      loginSeconds: varz.data.auth_timeout,
      ...storeOf(varz),
    });
  }
  return facts;
}

function storeOf({ data: { jetstream } }: z.infer<typeof Varz>): Pick<ServerFacts, "store"> {
  const { max_storage: most, sync_interval: interval = 0, sync_always: always = false } = jetstream?.config ?? {};
  if (most === undefined) return {};
  return { store: { used: jetstream?.stats?.storage ?? 0, most, syncSeconds: always ? 0 : interval / 1e9 } };
}

/** Looks until it is as wanted, or for as long as a forming cluster is waited for; returns what was seen last. */
async function lookingUntil<T>(look: () => Promise<T>, isWanted: (seen: T) => boolean): Promise<T> {
  const until = performance.now() + FORMING_MS;
  for (;;) {
    const seen = await look();
    if (isWanted(seen) || performance.now() >= until) return seen;
    await sleep(LOOK_AGAIN_MS);
  }
}

/** Throws unless every server there is takes our largest credential and our largest message, and ends a login in time. */
export async function assertServers(connection: Connection): Promise<void> {
  const { servers: facts, gap } = await lookingUntil(
    () => serverFacts(connection),
    (seen) => seen.gap === undefined,
  );
  if (facts.length === 0) {
    throw new CotalError(ErrorCode.Unavailable, "no server answered the system account", {
      next: "check that the broker runs with this state folder's operator",
    });
  }
  if (gap !== undefined) {
    throw new CotalError(ErrorCode.Unavailable, `not every server has shown its limits: ${gap}`, {
      next: "bring every server of the cluster back; no credential is minted before",
    });
  }
  for (const server of facts) {
    const [fault] = limitFaults(server);
    if (fault === undefined) continue;
    throw new CotalError(ErrorCode.FailedPrecondition, `on server ${server.name}, ${fault.what}`, {
      next: `set ${fault.set} in that server's configuration and reload it; no credential is minted before`,
    });
  }
}

const Connz = z.looseObject({
  data: z.looseObject({
    total: z.number(),
    connections: z.array(
      z.looseObject({ cid: z.number(), nkey: z.string().optional(), authorized_user: z.string().optional() }),
    ),
  }),
});

/**
 * How many live connections hold one of these user keys, over all servers that answer. Throws
 * `unavailable` if none does, or one tells of fewer connections than it has.
 */
export async function connectedUsers(connection: Connection, users: readonly string[]): Promise<number> {
  const wanted = new Set(users);
  const body = JSON.stringify({ auth: true, limit: 65_536 });
  const answers = await connection.nc.requestMany(sys.ping("CONNZ"), body, {
    strategy: "stall",
    maxWait: 3000,
    stall: 500,
  });
  let found = 0;
  let servers = 0;
  for await (const answer of answers) {
    const { connections, total } = Connz.parse(answer.json()).data;
    if (total > connections.length) throw unproven("a server did not list all of its connections");
    servers += 1;
    for (const live of connections) {
      if (wanted.has(live.nkey ?? "") || wanted.has(live.authorized_user ?? "")) found += 1;
    }
  }
  if (servers === 0) throw unproven("no server told who is connected");
  return found;
}

function unproven(why: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${why}: it is not proved that the revoked ones are gone`, {
    next: "run the same command again; the broker refuses their keys already",
  });
}
