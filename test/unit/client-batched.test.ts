/** When acks and pulls go out: together, and never later than the reader needs them. */
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { createBatched } from "../../shared/client/batched.ts";

function collect() {
  const sent: string[] = [];
  const batched = createBatched({ publish: (subject) => void sent.push(subject) });
  return { ...batched, sent };
}

test("one goes out by itself, in its order with what came with it", async () => {
  const { publish, sent } = collect();
  for (const subject of ["a", "b"]) publish(subject, "");
  expect(sent).toEqual([]);
  for (let turns = 0; turns < 3; turns += 1) await turn();
  expect(sent).toEqual(["a", "b"]);
});

test("while each turn brings more they wait, but not for long", async () => {
  const { publish, sent } = collect();
  let published = 0;
  const waited: number[] = [];
  for (let turns = 0; turns < 100; turns += 1) {
    publish(String((published += 1)), "");
    await turn();
    waited.push(published - sent.length);
  }
  expect(Math.max(...waited)).toBeGreaterThan(5);
  expect(Math.max(...waited)).toBeLessThanOrEqual(25);
  for (let turns = 0; turns < 3; turns += 1) await turn();
  expect(sent).toEqual(Array.from({ length: 100 }, (_, n) => String(n + 1)));
});

test("what is to go first goes at once, and a closed connection costs nobody anything", async () => {
  const { publish, flush, sent } = collect();
  publish("a", "");
  flush();
  expect(sent).toEqual(["a"]);
  const closed = createBatched({
    publish: () => {
      throw new Error("closed");
    },
  });
  closed.publish("b", "");
  closed.flush();
  closed.publish("c", "");
  for (let turns = 0; turns < 3; turns += 1) await turn();
});
