/**
 * Durable traffic through the SDK while something else goes on, and a checker that compares by id what was
 * acknowledged, what is stored and what was shown.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import type { Session } from "../../shared/client/index.ts";
import { streamState } from "../../shared/broker/ensure.ts";
import { storedMessages } from "../../shared/backup/messages.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import { until } from "./until.ts";

export const CHANNEL = "traffic";

export type Traffic = {
  /** Sends that the broker has acknowledged so far. */
  readonly acknowledged: () => number;
  /** Waits until so many more are acknowledged, from now on. */
  readonly more: (count: number) => Promise<void>;
  /** Ends the sending, reads what is stored, and waits until all of it, and all that was acknowledged, is shown. */
  readonly settle: (stored: () => Promise<readonly string[]>) => Promise<Counted>;
};

export type Counted = {
  /** Ids of sends that were acknowledged. */
  readonly sent: readonly string[];
  /** Ids in the order in which the member was shown them. */
  readonly shown: readonly string[];
  /** Ids of what is stored, in its order. */
  readonly stored: readonly string[];
  /** Codes of sends that were not acknowledged; they may be stored all the same. */
  readonly failed: readonly string[];
};

/** Slow machines and elections: a bound of a failure, nothing else. */
const PATIENCE_MS = 180_000;
/** A sender that found nobody tries the next one a moment later. */
const AGAIN_MS = 50;

/** `pauseMs`: between two sends of a sender, where it goes on for long. */
export async function startTraffic(senders: readonly Session[], member: Session, pauseMs = 0): Promise<Traffic> {
  const sent = new Set<string>();
  const shown: string[] = [];
  const failed: string[] = [];
  let running = true;
  await until("joined durable", async () => (await member.join(CHANNEL)).state === "joined durable", PATIENCE_MS);
  const handling = member.onItem((item) => {
    if (item.kind === "chat") shown.push(item.id);
  });
  const send = async (session: Session, who: number): Promise<void> => {
    for (let n = 0; running; n += 1) {
      try {
        const { id } = await session.send(CHANNEL, `${who} ${n}`);
        sent.add(id);
        if (pauseMs > 0) await sleep(pauseMs);
      } catch (thrown) {
        failed.push(toCotalError(thrown).code);
        await sleep(AGAIN_MS);
      }
    }
  };
  const sending = senders.map(send);
  return {
    acknowledged: () => sent.size,
    more: (count) => {
      const goal = sent.size + count;
      return until(`${count} more are acknowledged`, () => sent.size >= goal, PATIENCE_MS);
    },
    settle: async (read) => {
      running = false;
      await Promise.all(sending);
      const stored = await read();
      const owed = new Set([...sent, ...stored]);
      await until("all that was acknowledged is shown", () => missing(owed, new Set(shown)).length === 0, PATIENCE_MS);
      await handling.stop();
      return { sent: [...sent], shown, stored, failed };
    },
  };
}

/** Ids of the posts of the channel that are stored, in their order. */
export async function storedIds(store: NatsConnection, stream = "CHAT_main"): Promise<string[]> {
  const ids: string[] = [];
  const { firstSeq, lastSeq } = await streamState(store, stream);
  for await (const { subject, data } of storedMessages(store, stream, firstSeq, lastSeq)) {
    if (!subject.endsWith(`.${CHANNEL}`)) continue;
    ids.push((JSON.parse(new TextDecoder().decode(data)) as { id: string }).id);
  }
  return ids;
}

/** The same from outside, as a member reads the channel back; without what was there before. */
export async function readBackIds(session: Session, before: readonly string[] = []): Promise<string[]> {
  const known = new Set(before);
  return (await session.history(CHANNEL)).map(({ id }) => id).filter((id) => !known.has(id));
}

const missing = (all: ReadonlySet<string>, from: ReadonlySet<string>): string[] =>
  [...all].filter((id) => !from.has(id));

/**
 * What differs between the three. `unfounded`: shown and not stored. A post that found no quorum is heard live all the
 * same (§4), and its sender is told that it failed; where the broker stays, there is none.
 */
export function compare({ sent, shown, stored }: Counted) {
  const [acknowledged, kept, seen] = [new Set(sent), new Set(stored), new Set(shown)];
  return {
    lost: missing(acknowledged, kept),
    storedTwice: stored.length - kept.size,
    unseen: missing(kept, seen),
    shownTwice: shown.length - seen.size,
    unfounded: missing(seen, kept),
  };
}

export const NOTHING_LOST = { lost: [], storedTwice: 0, unseen: [], shownTwice: 0 };
