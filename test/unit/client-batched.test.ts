/** When acks and pulls go out: together, one message where one does, and never later than the reader needs them. */
import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { createBatched } from "../../shared/client/batched.ts";
import { AckBody } from "../../shared/protocol/base/broker-subjects.ts";

const PULLS = { subject: "next", body: '{"batch":1}' };

function collect() {
  const sent: string[] = [];
  let written = 0;
  const batched = createBatched(
    {
      publish: (subject, body, options) => {
        const text = typeof body === "string" ? body : new TextDecoder().decode(body);
        sent.push([subject, text, ...(options?.reply === undefined ? [] : [options.reply])].join(" "));
      },
      flush: () => {
        written = sent.length;
        return Promise.resolve();
      },
    },
    PULLS,
  );
  return { ...batched, sent, written: () => written };
}

async function turns(count = 3): Promise<void> {
  for (let n = 0; n < count; n += 1) await turn();
}

test("one goes out by itself, in its order with what came with it", async () => {
  const { publish, sent } = collect();
  for (const subject of ["a", "b"]) publish(subject, AckBody.Progress);
  expect(sent).toEqual([]);
  await turns();
  expect(sent).toEqual(["a +WPI", "b +WPI"]);
});

test("an acknowledgement carries a pull; nothing else does, and neither waits for the other", async () => {
  const { publish, pull, sent } = collect();
  pull("r1");
  await turns();
  publish("a", AckBody.Ack);
  await turns();
  expect(sent.splice(0)).toEqual(['next {"batch":1} r1', "a +ACK"]);
  for (const reply of ["r2", "r3"]) pull(reply);
  publish("b", AckBody.Term);
  publish("c", AckBody.Ack);
  await turns();
  expect(sent.splice(0)).toEqual(["b +TERM", 'c +NXT {"batch":1} r2', 'next {"batch":1} r3']);
  pull("r4");
  for (const subject of ["d", "e"]) publish(subject, AckBody.Ack);
  await turns();
  expect(sent).toEqual(['d +NXT {"batch":1} r4', "e +ACK"]);
});

test("while each turn brings more they wait, but not for long; so many at once are written at once", async () => {
  const { publish, sent, written } = collect();
  let published = 0;
  const waited: number[] = [];
  for (let at = 0; at < 100; at += 1) {
    publish(String((published += 1)), AckBody.Ack);
    await turn();
    waited.push(published - sent.length);
  }
  expect(Math.max(...waited)).toBeGreaterThan(5);
  expect(Math.max(...waited)).toBeLessThan(16);
  await turns();
  for (let n = 0; n < 20; n += 1) publish("now", AckBody.Ack);
  expect([sent.length, written()]).toEqual([116, 116]);
  await turns();
  expect(sent.map((line) => line.split(" ")[0])).toEqual([
    ...Array.from({ length: 100 }, (_, n) => String(n + 1)),
    ...Array.from({ length: 20 }, () => "now"),
  ]);
});

test("pulls that no acknowledgement comes with wait no longer, however steadily more come", async () => {
  const { pull, sent } = collect();
  const waited: number[] = [];
  for (let at = 1; at <= 100; at += 1) {
    pull(String(at));
    await turn();
    waited.push(at - sent.length);
  }
  expect(Math.max(...waited)).toBeLessThanOrEqual(17);
});

test("what is to go first goes at once, and a closed connection costs nobody anything", async () => {
  const { publish, flush, sent } = collect();
  publish("a", AckBody.Progress);
  flush();
  expect(sent).toEqual(["a +WPI"]);
  const closed = createBatched(
    {
      publish: () => {
        throw new Error("closed");
      },
      flush: () => Promise.reject(new Error("closed")),
    },
    PULLS,
  );
  closed.publish("b", AckBody.Ack);
  closed.flush();
  for (let n = 0; n < 20; n += 1) closed.publish("c", AckBody.Ack);
  await turns();
});
