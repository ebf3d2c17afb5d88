/** Copies of what was shown live bring nothing new: they are fetched together and once a second, and none is left. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { dlvDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { api } from "../support/raw-jetstream.ts";
import { type Sessions, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const POSTS = 100;
const EVERY_MS = 20;
const LISTS = { subscribe: ["news"], publish: ["news"] };

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

test("W8.11 the durable of a member who hears everything live moves about once a second, and is empty in the end", async () => {
  const [poster, member] = [
    await sessions.minted({ actor: "poster", ...LISTS }),
    await sessions.minted({ actor: "member", ...LISTS }),
  ];
  expect(await member.join("news", { replay: false })).toMatchObject({ class: "durable" });
  const reading = take(member, POSTS);
  const store = await space.store();
  const { principal, uid } = member.me;
  const durable = `CONSUMER.INFO.${spaceNames("main").dlv}.${dlvDurable(principal, uid)}`;
  const floors = new Set<number>();
  const look = async (): Promise<{ readonly pending: number; readonly out: number }> => {
    const info = (await api(store, durable)) as {
      ack_floor: { consumer_seq: number };
      num_pending: number;
      num_ack_pending: number;
    };
    floors.add(info.ack_floor.consumer_seq);
    return { pending: info.num_pending, out: info.num_ack_pending };
  };
  const began = performance.now();
  for (let n = 0; n < POSTS; n += 1) {
    await poster.send("news", `post ${n}`);
    await look();
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, began + n * EVERY_MS - performance.now())));
  }
  const seconds = (performance.now() - began) / 1000;
  expect(await reading).toHaveLength(POSTS);
  // One fetch a second, seen in a few states; one copy at a time would be fifty.
  expect(floors.size).toBeLessThan(4 * seconds + 8);
  await until("every copy is acknowledged", async () => {
    const { pending, out } = await look();
    return pending === 0 && out === 0 && Math.max(...floors) >= POSTS;
  });
}, 60_000);
