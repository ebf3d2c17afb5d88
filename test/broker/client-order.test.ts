/** What order is kept, and that nothing depends on the order that is not (§4). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Sessions, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let sessions: Sessions;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

test("W4.12: each sender's posts of a channel keep their order, whatever lies between them", async () => {
  const lists = { subscribe: ["left", "right"], publish: ["left", "right"] };
  const reader = await sessions.minted({ actor: "reader", ...lists });
  const writers = [await sessions.minted({ actor: "w1", ...lists }), await sessions.minted({ actor: "w2", ...lists })];
  await reader.join("left");
  await reader.join("right");
  const count = 100;
  await Promise.all(
    writers.flatMap((writer) =>
      ["left", "right"].flatMap((channel) => Array.from({ length: count }, (_, n) => writer.send(channel, String(n)))),
    ),
  );
  const items = await take(reader, 4 * count);
  const lanes = Map.groupBy(items, (item) => `${item.from.id} ${item.kind === "chat" ? item.channel : ""}`);
  expect(lanes.size).toBe(4);
  for (const lane of lanes.values()) {
    expect(lane.map(({ text }) => Number(text))).toEqual(Array.from({ length: count }, (_, n) => n));
  }
});

test("W4.12: a reply that comes before its question is shown, and so is the question after it", async () => {
  const reader = await sessions.minted({ actor: "late_reader" });
  const asker = await sessions.minted({ actor: "asker" });
  const helper = await sessions.minted({ actor: "helper" });
  await helper.dm(reader.me.id, "the answer", { replyTo: "question-1" });
  await asker.dm(reader.me.id, "the question", { replyTo: "nothing-that-exists" });
  const items = await take(reader, 2);
  expect(items.map(({ text, replyTo }) => ({ text, replyTo }))).toEqual([
    { text: "the answer", replyTo: "question-1" },
    { text: "the question", replyTo: "nothing-that-exists" },
  ]);
});
