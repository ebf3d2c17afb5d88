/** A handler that takes minutes, with the ack wait that the broker really has (§8). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { AckBody, jsAck, jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { type Sessions, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { sleep } from "../support/vitals.ts";

const HANDLING_MS = 180_000;

let space: TestSpace;
let sessions: Sessions;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

type ConsumerInfo = {
  readonly config: { readonly ack_wait: number };
  readonly delivered: { readonly consumer_seq: number };
  readonly ack_floor: { readonly stream_seq: number };
  readonly num_ack_pending: number;
  readonly num_redelivered: number;
  readonly num_pending: number;
};

test(
  "W8.16: a handler of three minutes gets its message once, it is renewed meanwhile, and one ack ends it",
  async () => {
    const alice = await sessions.minted({ actor: "alice" });
    const bob = await sessions.minted({ actor: "bob" });
    const { dm } = spaceNames("main");
    const durable = dmDurable(bob.me.principal, bob.me.uid);
    const store = await space.store();
    const info = async (): Promise<ConsumerInfo> =>
      (await store.request(jsApi.consumerInfo(dm, durable), "", { timeout: 5000 })).json<ConsumerInfo>();
    const said = new Map<string, number>();
    store.subscribe(jsAck.of(dm, durable), {
      callback: (error, message) => {
        const word = error === null ? message.string().split(" ")[0] : undefined;
        if (word !== undefined) said.set(word, (said.get(word) ?? 0) + 1);
      },
    });
    await store.flush();

    const shown: string[] = [];
    const handled: string[] = [];
    bob.onItem(async (item) => {
      shown.push(`${item.text} ${item.deliveries}`);
      if (item.text === "slow") await sleep(HANDLING_MS);
      handled.push(item.text);
    });
    await until("the inbox answers", () => bob.inboxState().dm === "ok");
    const began = performance.now();
    await alice.dm(bob.me.id, "slow");
    // Behind it, in hand and not yet shown, for as long.
    await alice.dm(bob.me.id, "next");
    await until("shown", () => shown.length === 1);
    // The second one is on its way to a pull that waits.
    await expect.poll(async () => (await info()).num_ack_pending, { timeout: 10_000 }).toBe(2);
    expect(await info()).toMatchObject({ config: { ack_wait: 60e9 }, num_ack_pending: 2, num_redelivered: 0 });

    await until("handled", () => handled.length === 2, HANDLING_MS + 30_000);
    expect(performance.now() - began).toBeGreaterThanOrEqual(HANDLING_MS - 1000);
    await until("acknowledged", async () => (await info()).ack_floor.stream_seq === 2);
    expect(shown).toEqual(["slow 1", "next 1"]);
    expect(handled).toEqual(["slow", "next"]);
    expect(await info()).toMatchObject({
      delivered: { consumer_seq: 2 },
      num_ack_pending: 0,
      num_redelivered: 0,
      num_pending: 0,
    });
    expect(bob.stats()).toMatchObject({ acked: 2, redelivered: 0, duplicates: 0, held: 0 });
    expect(bob.told.filter(({ type }) => type === "lapsed" || type === "handler-failed")).toEqual([]);
    // Every ack wait of each copy was bridged, and nothing else was said of it.
    expect([...said.keys()].toSorted()).toEqual([AckBody.Ack, AckBody.Progress]);
    expect(said.get(AckBody.Ack)).toBe(2);
    expect(said.get(AckBody.Progress)).toBeGreaterThanOrEqual(2 * Math.floor(HANDLING_MS / 60_000));
  },
  HANDLING_MS + 90_000,
);
