/**
 * The fan-out writer over a bare broker: streams and buckets as a space has them, read lists written by hand,
 * posts published raw. What is stored is counted from the streams (`stored-copies.ts`).
 */
import { randomBytes } from "node:crypto";
import { type NatsConnection, connect, headers } from "@nats-io/transport-node";
import { createBell } from "../../services/delivery/fanout/bell.ts";
import { regroup } from "../../services/delivery/fanout/regroup.ts";
import { type Change, createRequests } from "../../services/delivery/fanout/requests.ts";
import { type FanoutEvent, writeGroup } from "../../services/delivery/fanout/writer.ts";
import { ensureStreams } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { type Death, createWriter } from "../../shared/broker/write.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm, drawLifecycleUid, principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { PresenceStatus } from "../../shared/protocol/chat/presence.ts";
import type { Membership } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import type { AclRow } from "../../shared/protocol/ledger/rows.ts";
import { type Lifecycle, groupOf } from "../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { startBroker } from "./nats-server.ts";
import { markerOf } from "./stored-copies.ts";

export const OWNER = `u_${"f".repeat(26)}`;

export type Running = {
  readonly ask: (change: Change) => Promise<Membership | undefined>;
  /** Rejects with what ended it. */
  readonly ended: Promise<void>;
  readonly stop: () => Promise<void>;
  readonly events: readonly FanoutEvent[];
  /** Durable steps that were begun. */
  readonly steps: () => number;
};

export type RunOptions = {
  readonly die?: Death;
  readonly group?: number;
  readonly groups?: number;
  /** Through what the writer reads and writes. */
  readonly through?: NatsConnection;
};

export async function startFanoutRig() {
  const broker = await startBroker();
  const nc = await connect({ servers: broker.url, reconnect: true, maxReconnectAttempts: -1, reconnectTimeWait: 50 });
  const names = spaceNames("main");
  // Without limits: a copy too many is then seen, and does not push out another.
  const specs = spaceStreams("main", { replicas: 1 });
  const unlimited = { max_msgs_per_subject: -1 };
  await ensureStreams(
    nc,
    specs.map((spec) => (spec.name === names.dlv || spec.name === names.chat ? { ...spec, ...unlimited } : spec)),
  );
  const subjects = spaceSubjects("main");
  let posted = 0;

  const put = async (bucket: string, key: string, value: object): Promise<void> => {
    await nc.request(kvKey(bucket, key), JSON.stringify(value));
  };
  const list = async (lifecycle: Lifecycle, allowSubscribe: readonly string[], name?: string): Promise<void> => {
    const row: AclRow = {
      v: 1,
      name: name ?? lifecycle.principal.actor,
      allowSubscribe: [...allowSubscribe],
      durables: true,
      credential: `U${"A".repeat(55)}`,
      at: 1,
    };
    await put(names.bucket.acl, lifecycle.key, row);
  };
  const member = async (actor: string, allowSubscribe: readonly string[] = [">"]): Promise<Lifecycle> => {
    const [who, uid] = [principal(OWNER, actor), drawLifecycleUid(randomBytes)];
    const lifecycle = { key: ledgerKey.acl(who, uid), principal: who, uid };
    await list(lifecycle, allowSubscribe);
    return lifecycle;
  };
  const body = (channel: string, text: string, more: object): string => {
    posted += 1;
    const from = { id: `${OWNER}.poster`, name: "poster" };
    const parts = [{ kind: "text", text }];
    return JSON.stringify({ id: `p${posted}`, ts: 1, space: "main", from, channel, parts, ...more });
  };
  /** Posts and returns the sequence in CHAT. */
  const post = async (channel: string, text: string, more: object = {}): Promise<number> => {
    const answer = await nc.request(subjects.chat(principal(OWNER, "poster"), channel), body(channel, text, more), {
      timeout: 10_000,
    });
    return (answer.json() as { seq: number }).seq;
  };

  /** So many posts at once; the sequence of the last. */
  const backlog = async (channel: string, count: number): Promise<number> => {
    const subject = subjects.chat(principal(OWNER, "poster"), channel);
    for (let n = 1; n < count; n += 1) nc.publish(subject, body(channel, `${n}`, {}));
    return post(channel, `${count}`);
  };

  const run = ({ die, group = 0, groups = 1, through = nc }: RunOptions = {}): Running => {
    const events: FanoutEvent[] = [];
    const stopping = new AbortController();
    const bell = createBell(nc, "main");
    const requests = createRequests(bell.ring);
    const writer = createWriter({ nc: through, die });
    stopping.signal.addEventListener("abort", bell.ring);
    const tell = (event: FanoutEvent): void => void events.push(event);
    const ended = writeGroup(
      { nc: through, space: "main", group, groups, instanceId: "test", writer, bell, requests, tell },
      stopping.signal,
    ).finally(bell.stop);
    ended.catch(() => undefined);
    return {
      events,
      ended,
      steps: writer.count,
      ask: (change) => Promise.race([requests.ask(change, stopping.signal), ended.then(() => undefined)]),
      stop: async () => {
        stopping.abort();
        await ended;
      },
    };
  };

  /** Brings the groups to another number, or goes on with that, as the service does. `wanted` is asked as the setting is. */
  const regrouped = async (wanted: number | (() => Promise<number>), die?: Death): Promise<number | undefined> => {
    const bell = createBell(nc, "main");
    const parts = { nc, space: "main", instanceId: "test", bell, tell: () => undefined };
    try {
      const setting = typeof wanted === "number" ? () => Promise.resolve(wanted) : wanted;
      const options = { ...parts, wanted: setting, writer: createWriter({ nc, die }) };
      return await regroup(options, new AbortController().signal);
    } finally {
      bell.stop();
    }
  };

  const frontier = async (): Promise<number> => {
    const answer = await nc.request(jsApi.streamInfo(names.chat), "");
    return (answer.json() as { state: { last_seq: number } }).state.last_seq;
  };
  return {
    nc: nc satisfies NatsConnection,
    broker,
    member,
    list,
    post,
    backlog,
    run,
    regrouped,
    put,
    frontier,
    posterSubject: (channel: string) => subjects.chat(principal(OWNER, "poster"), channel),
    config: (channel: string, config: object) => put(names.bucket.channels, channel, config),
    present: (lifecycle: Lifecycle, status: PresenceStatus = "idle") => {
      const id = dotForm(lifecycle.principal);
      const card = { id, name: lifecycle.principal.actor, kind: "agent" };
      return put(names.bucket.presence, id, { card, status, ts: Date.now() });
    },
    /** Takes the list away, as the end of a lifecycle does. */
    unlist: async (lifecycle: Lifecycle): Promise<void> => {
      const deleted = headers();
      deleted.set(Header.KvOperation, "DEL");
      await nc.request(kvKey(names.bucket.acl, lifecycle.key), "", { headers: deleted, timeout: 5000 });
    },
    listed: (lifecycle: Lifecycle) =>
      leaderLast(nc, bucketStream(names.bucket.acl), kvKey(names.bucket.acl, lifecycle.key)),
    passed: async (seq: number, group = 0): Promise<void> => {
      while (((await markerOf(nc, group))?.sequence ?? 0) < seq) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    groupOf: (lifecycle: Lifecycle, groups: number) => groupOf(lifecycle.key, groups),
    stop: async () => {
      await nc.close();
      await broker.stop();
    },
  };
}

export type FanoutRig = Awaited<ReturnType<typeof startFanoutRig>>;

export const joining = (lifecycle: Lifecycle, pattern: string, cursor: number): Change => ({
  kind: "join",
  lifecycle,
  pattern,
  cursor,
});
export const leaving = (lifecycle: Lifecycle, pattern: string): Change => ({ kind: "leave", lifecycle, pattern });
