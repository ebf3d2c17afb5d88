/**
 * The same jobs with nats.js alone: each gives the same guarantee in the least code.
 *
 * What a client of the space may do runs in front under an agent's credential; what only daemons may
 * do (publishing inside one account, direct gets) runs in the store.
 */
import { type JetStreamClient, type StoredMsg, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { type NatsConnection, connect, credsAuthenticator, nuid } from "@nats-io/transport-node";
import { inboxPrefix, kvAll } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { parseCreds } from "../../shared/trust/creds.ts";
import { type Jobs, type Setup, complete, pause, perSecond, pipelined, sinceStamp, stamp } from "./jobs.ts";
import { drainByPulls } from "./pulls.ts";

const BATCH = 1000;

export async function bare(setup: Setup): Promise<Jobs> {
  const { url, space, wireBytes } = setup;
  const { view } = parseCreds(setup.creds);
  const prefix = inboxPrefix(view.uid, view.inboxNonce);
  const open = (creds: string, more = {}): Promise<NatsConnection> =>
    connect({ servers: url, authenticator: credsAuthenticator(new TextEncoder().encode(creds)), ...more });
  const front = await open(setup.creds, { inboxPrefix: prefix });
  const store = await open(setup.storeCreds);
  const names = spaceNames(space);
  const subjects = spaceSubjects(space);
  const subject = subjects.chat(view.principal, setup.channel);
  const manager = await jetstreamManager(store);
  const publish = (js: JetStreamClient, to: string, text: string) => js.publish(to, text, { msgID: nuid.next() });
  const live = front.subscribe(subjects.chatRead(setup.channel))[Symbol.asyncIterator]();

  /** So many under the filter, by batched direct gets. */
  const read = async (stream: string, filter: string, count: number): Promise<StoredMsg[]> => {
    const found: StoredMsg[] = [];
    while (found.length < count) {
      const seq = (found.at(-1)?.seq ?? 0) + 1;
      const page = await manager.direct.getBatch(stream, { seq, batch: BATCH, next_by_subj: filter });
      for await (const message of page) found.push(message);
    }
    return found;
  };

  return {
    pace: async ({ count, pauseMs }) => {
      const js = jetstream(front);
      for (let sent = 0; sent < count; sent += 1) {
        await publish(js, subject, stamp().padEnd(wireBytes, "."));
        if (pauseMs > 0) await pause(pauseMs);
      }
    },
    receive: async ({ count }) => {
      const taken: number[] = [];
      while (taken.length < count) {
        const next = await live.next();
        if (next.done === true) throw new Error("the subscription ended");
        taken.push(sinceStamp(next.value.string()));
      }
      return taken;
    },
    flood: async ({ count, inFlight }) => {
      const js = jetstream(store);
      const text = ".".repeat(wireBytes);
      const began = performance.now();
      await pipelined(count, inFlight, () => publish(js, setup.plainSubject, text));
      return perSecond(count, began);
    },
    drain: ({ count, pulls }) => {
      const durable = dmDurable(view.principal, view.uid);
      return drainByPulls(front, { stream: names.dm, durable, reply: `${prefix}.bench`, count, pulls });
    },
    history: async ({ channel, count }) => {
      const began = performance.now();
      const found = await read(names.chat, subjects.chatRead(channel), count);
      const parsed = found.map((message) => message.json<object>());
      complete("history", parsed.length, count);
      return perSecond(count, began);
    },
    roster: async ({ members }) => {
      const began = performance.now();
      const { presence } = names.bucket;
      const found = await read(bucketStream(presence), kvAll(presence), members);
      const parsed = found.map((message) => message.json<object>());
      complete("roster", parsed.length, members);
      return performance.now() - began;
    },
    close: async () => {
      await Promise.all([front.close(), store.close()]);
    },
  };
}
