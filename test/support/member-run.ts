/**
 * Members, the delivery daemon and the broker are killed while durable channels are posted to; then what every member
 * process showed is held against the streams (`member-faults.ts`).
 *
 * Members end themselves before or after they show a message; the daemon before or after one of its durable steps,
 * each time another. A run goes on until it has its posts and its kills, so it asserts nothing about speed.
 */
import { join } from "node:path";
import { startDeliveryService } from "./delivery-service.ts";
import { faultsOf, postsOf, watchAcks } from "./member-faults.ts";
import { type Death, MEMBER_ACK_WAIT_MS, startMember } from "./member-process.ts";
import { api } from "./raw-jetstream.ts";
import type { Draw } from "./seeded.ts";
import { sessionsOf } from "./sessions.ts";
import { type TestSpace, startSpace } from "./space.ts";
import { backstopOf, markerOf, rowsOf } from "./stored-copies.ts";
import { until } from "./until.ts";
import { dlvDurable } from "../../shared/protocol/base/names.ts";

export type Kills = Readonly<Record<Death | "daemon" | "broker", number>>;

export type RunSize = {
  readonly members: number;
  readonly channels: number;
  /** At least so many of each. */
  readonly posts: number;
  readonly kills: Kills;
  /** A member ends itself with one of so many messages. */
  readonly dieWithin: number;
};

export type Ran = {
  readonly posts: number;
  readonly kills: Kills;
  readonly copies: number;
  /** Messages that were shown once more, by another process. */
  readonly again: number;
  readonly faults: readonly string[];
};

const SLOW = 240_000;

export async function runMembers(size: RunSize, draw: Draw): Promise<Ran> {
  const space = await startSpace({ delivery: false });
  const running: (() => Promise<unknown>)[] = [() => space.stop()];
  try {
    return await run(space, size, draw, running);
  } finally {
    for (const stop of running.toReversed()) await stop();
  }
}

async function run(space: TestSpace, size: RunSize, draw: Draw, running: (() => Promise<unknown>)[]): Promise<Ran> {
  const sessions = sessionsOf(space);
  running.push(sessions.closeAll);
  const store = await space.store();
  const channels = Array.from({ length: size.channels }, (_, n) => `run.c${n}`);
  const done = { before: 0, after: 0, anywhere: 0, daemon: 0, broker: 0 };
  const lacks = (kind: keyof Kills): boolean => done[kind] < size.kills[kind];
  let isOver = false;
  let isCalm = true;
  for (const which of ["chat", "delivery"]) {
    await space.call("limits-set", { store: which, maxPerSubject: 1_000_000 });
  }
  const daemon = startDeliveryService(space, () =>
    isOver || isCalm
      ? {}
      : {
          NODE_OPTIONS: `--import=${join(import.meta.dirname, "durable-steps.ts")}`,
          COTAL_TEST_DIE: `${draw.pick(["before", "after"])}:${draw.int(2, 9)}`,
        },
  );
  running.push(() => daemon.kill());
  const end = (): Promise<void> => {
    isOver = true;
    return keeping;
  };
  running.push(end);
  const keeping = (async () => {
    while (!isOver) {
      if (!daemon.isRunning()) {
        done.daemon += 1;
        daemon.restart();
        daemon.ready().catch(() => undefined);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  await daemon.ready();
  const acks = watchAcks(store);
  const crashed: string[] = [];
  const members = await Promise.all(
    Array.from({ length: size.members }, async (_, n) => {
      const who = await space.mint({ actor: `m${n}`, subscribe: [">"], publish: [] });
      await shortenAckWait(store, dlvDurable(who.view.principal, who.view.uid));
      const member = startMember({
        space,
        who,
        channels: channels.filter((_channel, at) => (n + at) % 4 !== 3),
        die: () => {
          const kinds = (["before", "after"] as const).filter(lacks);
          return isOver || isCalm || kinds.length === 0
            ? "never"
            : `${draw.pick(kinds)}:${draw.int(1, size.dieWithin)}`;
        },
        onDeath: (death) => {
          if (death === "fault") crashed.push(`m${n} ended by itself`);
          else done[death] += 1;
        },
      });
      running.push(member.stop);
      return member;
    }),
  );
  // Everybody is a member before anything is posted; from then on they die.
  for (const { who, channels: joined } of members) {
    const isJoined = async () => (await rowsOf(store, who.view)).filter(({ state }) => state === "joined").length;
    await until("it is a member", async () => (await isJoined()) === joined.length, SLOW);
  }
  isCalm = false;
  for (const member of members) member.kill();
  await daemon.kill();
  const speaker = await sessions.minted({ actor: "speaker", subscribe: [">"], publish: [">"] });
  const brokerKills: bigint[] = [];
  const leaves: Promise<void>[] = [];
  const mostLeaves = Math.ceil((size.members * size.channels) / 8);
  let posted = 0;
  const round = Math.max(10, Math.ceil(size.posts / 200));
  while (posted < size.posts || (Object.keys(done) as (keyof Kills)[]).some(lacks)) {
    const burst = Array.from({ length: round }, () => speaker.send(draw.pick(channels), `p${(posted += 1)}`));
    await Promise.all(burst.map((send) => send.catch(() => undefined)));
    if (lacks("anywhere") && draw.chance(0.5)) draw.pick(members).kill();
    if (lacks("broker") && draw.chance(0.1)) {
      brokerKills.push(process.hrtime.bigint());
      await space.broker.kill();
      await space.broker.restart();
      done.broker += 1;
    }
    if (leaves.length < mostLeaves && draw.chance(0.05)) leaves.push(draw.pick(members).leave(draw.pick(channels)));
    // What is lacking then are kills: processes come back in their own time, and posts only keep them busy.
    await new Promise((resolve) => setTimeout(resolve, posted < size.posts ? 20 : 500));
  }
  await end();
  await daemon.kill();
  daemon.restart();
  await Promise.all(leaves);
  let last = 0;
  const isSent = async (): Promise<boolean> => {
    last = (await speaker.send("run.c0", "last").catch(() => undefined))?.seq ?? 0;
    return last > 0;
  };
  await until("sends go through", isSent, SLOW);
  const isPassed = async () => ((await markerOf(store).catch(() => undefined))?.sequence ?? 0) >= last;
  await until("the fan-out has passed it", isPassed, SLOW);
  for (const { who } of members) {
    const isRead = async () => {
      const left = await backstopOf(store, who.view).catch(() => undefined);
      return left?.waiting === 0 && left.unacknowledged === 0;
    };
    await until(`${who.view.principal.actor} has every copy`, isRead, SLOW);
  }
  await Promise.all(members.map((member) => member.stop()));
  const seen = { store, posts: await postsOf(store), acks, brokerKills };
  const found = [];
  for (const { who, shown } of members) found.push(await faultsOf(seen, who, shown));
  return {
    posts: seen.posts.length,
    kills: done,
    copies: found.reduce((sum, { copies }) => sum + copies, 0),
    again: found.reduce((sum, { again }) => sum + again, 0),
    faults: [...crashed, ...found.flatMap(({ faults }) => faults)],
  };
}

/** The durable is the provisioner's; a short ack wait keeps the run short. */
async function shortenAckWait(store: Parameters<typeof api>[0], durable: string): Promise<void> {
  const { config } = (await api(store, `CONSUMER.INFO.DLV_main.${durable}`)) as { config: { filter_subject: string } };
  const changed = { ...config, ack_wait: MEMBER_ACK_WAIT_MS * 1e6 };
  await api(store, `CONSUMER.CREATE.DLV_main.${durable}.${config.filter_subject}`, {
    stream_name: "DLV_main",
    action: "update",
    config: changed,
  });
}
