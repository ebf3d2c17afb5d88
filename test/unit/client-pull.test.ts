/** How often a pull loop asks, over a durable and a clock of our own. */
import type { Msg, MsgCallback, NatsConnection } from "@nats-io/transport-node";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createPullLoop } from "../../shared/client/pull.ts";

const LEAD = "_INBOX.pull.";
const SECONDS = 10;
const EVERY_MS = 20;

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** A durable that answers each pull at once while it has something, and the loop that reads it. */
function durable(isNew: boolean) {
  let [waiting, out, taken] = [0, 0, 0];
  /** The moments at which anything was fetched. */
  const moments = new Set<number>();
  let tell: MsgCallback<Msg> = () => undefined;
  const nc = {
    subscribe: (_: string, { callback }: { callback: MsgCallback<Msg> }) => {
      tell = callback;
      return { drain: () => Promise.resolve() };
    },
    flush: () => Promise.resolve(),
  } as unknown as NatsConnection;
  const serve = (): void => {
    while (waiting > 0 && out > 0) {
      [waiting, out, taken] = [waiting - 1, out - 1, taken + 1];
      moments.add(Date.now());
      void tell(null, { subject: "a.copy" } as Msg);
    }
  };
  const loop = createPullLoop({
    nc,
    pull: () => {
      out += 1;
      queueMicrotask(serve);
    },
    replyLead: LEAD,
    expiresMs: 2000,
    maxOutstanding: 48,
    room: () => 256,
    isUp: () => true,
    onMessage: () => (isNew ? undefined : waiting),
    onState: () => undefined,
    onLost: () => undefined,
    now: () => Date.now(),
  });
  loop.kick();
  return {
    taken: () => taken,
    moments,
    arrive: () => {
      waiting += 1;
      serve();
    },
  };
}

async function whileTheyCome({ arrive }: { readonly arrive: () => void }): Promise<void> {
  for (let ms = 0; ms < SECONDS * 1000; ms += EVERY_MS) {
    arrive();
    await vi.advanceTimersByTimeAsync(EVERY_MS);
  }
}

test("what brings nothing new is fetched together, once a second (decision 40)", async () => {
  const one = durable(false);
  await whileTheyCome(one);
  expect(one.moments.size).toBeGreaterThanOrEqual(SECONDS - 1);
  expect(one.moments.size).toBeLessThanOrEqual(SECONDS + 1);
  await vi.advanceTimersByTimeAsync(1100);
  expect(one.taken()).toBe((SECONDS * 1000) / EVERY_MS);
});

test("what is new comes the moment it is there", async () => {
  const one = durable(true);
  await whileTheyCome(one);
  expect([one.moments.size, one.taken()]).toEqual([500, 500]);
});
