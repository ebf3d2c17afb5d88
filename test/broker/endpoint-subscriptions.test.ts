/**
 * The subscriptions of calls (§13.2): one for each nonce, there before its request, deaf once it is over, and
 * ended without a word of its own.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { Route } from "../../shared/protocol/endpoint/grammar.ts";
import { type CallerRig, ENDPOINT, SPACE, callerOn, dial } from "../support/endpoint-rig.ts";
import { NOTHING, type Received, startForeign } from "../support/foreign-endpoint.ts";
import { type TestBroker, freePort, startBroker } from "../support/nats-server.ts";
import { eventually } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";

const EPOCH = 3;
const ADDRESS = { route: Route.One, endpoint: ENDPOINT, command: "look" } as const;

type Step = { readonly what: "subscribe" | "publish" | "end"; readonly nonce: string };

let monitor: number;
let broker: TestBroker;
let asker: Connection;
let server: Connection;
let rig: CallerRig;
let steps: Step[] = [];
let answer: (received: Received) => unknown = () => ({ seen: "x" });

const nonceOf = (subject: string): string => subject.slice(subject.lastIndexOf(".") + 1);

/** The connection with a note of each subscription's beginning and end, and of each publish. */
function noted(nc: NatsConnection): NatsConnection {
  return new Proxy(nc, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...given: unknown[]): unknown => {
        const made = Reflect.apply(value, target, given) as { unsubscribe: (max?: number) => void };
        const nonce = nonceOf(String(given[0]));
        if (name === "publish") steps.push({ what: name, nonce });
        if (name !== "subscribe") return made;
        steps.push({ what: name, nonce });
        const end = made.unsubscribe.bind(made);
        made.unsubscribe = (max) => {
          steps.push({ what: "end", nonce });
          end(max);
        };
        return made;
      };
    },
  });
}

/** How many the broker holds for this client. */
async function held(): Promise<number> {
  await asker.nc.flush();
  const got = await fetch(`http://127.0.0.1:${monitor}/connz`);
  const { connections } = (await got.json()) as { connections: { name?: string; subscriptions: number }[] };
  return connections.find(({ name }) => name === "asker")?.subscriptions ?? 0;
}

beforeAll(async () => {
  monitor = await freePort();
  broker = await startBroker({ lines: [`http: "127.0.0.1:${monitor}"`] });
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  rig = callerOn(noted(asker.nc), asker.inboxPrefix, { rail: { maxPending: 4 } });
  await startForeign({
    nc: server.nc,
    space: SPACE,
    endpoint: ENDPOINT,
    epoch: EPOCH,
    commands: { look: (received) => answer(received) },
  });
  // The rail's own subscriptions stand from here on.
  await rig.rail.ask({ address: ADDRESS, args: {} }, 5000);
});
beforeEach(() => {
  steps = [];
  answer = () => ({ seen: "x" });
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

test("W132.06: each request has a subscription of its own before it, and what is over ends with the next", async () => {
  for (let n = 0; n < 4; n += 1) await rig.rail.ask({ address: ADDRESS, args: { n } }, 5000);
  // Of the first one the test does not say what the one before it left behind.
  const [, first, second, third] = steps.filter(({ what }) => what === "publish").map(({ nonce }) => nonce);
  expect(new Set([first, second, third]).size).toBe(3);
  expect(steps.slice(steps.findIndex(({ nonce }) => nonce === first))).toEqual([
    { what: "subscribe", nonce: first },
    { what: "publish", nonce: first },
    { what: "end", nonce: expect.any(String) as string },
    { what: "subscribe", nonce: second },
    { what: "publish", nonce: second },
    { what: "end", nonce: first },
    { what: "subscribe", nonce: third },
    { what: "publish", nonce: third },
    { what: "end", nonce: second },
  ]);
});

test("W132.06: a quiet client's last subscription ends too, and the broker holds none", async () => {
  // The sentinel, and what the test's own call left behind is gone.
  const before = 1;
  expect(await eventually(held, (count) => count <= before)).toBe(before);
  await Promise.all([1, 2, 3].map((n) => rig.rail.ask({ address: ADDRESS, args: { n } }, 5000)));
  answer = () => NOTHING;
  expect((await failure(rig.rail.ask({ address: ADDRESS, args: {} }, 50))).code).toBe("deadline-exceeded");
  expect(await eventually(held, (count) => count <= before)).toBe(before);
  const opened = steps.filter(({ what }) => what === "subscribe").map(({ nonce }) => nonce);
  const ended = new Set(steps.filter(({ what }) => what === "end").map(({ nonce }) => nonce));
  expect(opened.filter((nonce) => !ended.has(nonce))).toEqual([]);
});

test("W132.06 W132.12: once it is over nothing on its nonce is heard, not even who succeeds the one that answered", async () => {
  const seen: Received[] = [];
  answer = (received) => {
    seen.push(received);
    received.answer({ ok: true, data: { seen: "first" } });
    // Both in one packet: the second comes while the subscription still stands.
    received.answer({ ok: true, data: { seen: "second" } }, { epoch: EPOCH + 1 });
    return NOTHING;
  };
  expect((await rig.rail.ask({ address: ADDRESS, args: {} }, 5000)).by.epoch).toBe(EPOCH);
  seen[0]?.answer({ ok: true, data: { seen: "third" } }, { epoch: EPOCH + 2 });
  await server.nc.flush();
  await asker.nc.flush();
  answer = () => ({ seen: "x" });
  // Had a later epoch been heard, this one would be of somebody who was succeeded.
  expect((await rig.rail.ask({ address: ADDRESS, args: {} }, 5000)).by.epoch).toBe(EPOCH);
});

test("no more stand than may wait and one, also while those that are over have not been ended", async () => {
  for (let round = 0; round < 20; round += 1) {
    const asked = [1, 2, 3, 4, 5].map((n) => rig.rail.ask({ address: ADDRESS, args: { n } }, 5000));
    expect(await failure(Promise.all(asked))).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    await Promise.allSettled(asked);
    expect(rig.rail.pending()).toBe(0);
  }
  const standing = new Set<string>();
  let most = 0;
  for (const { what, nonce } of steps) {
    if (what === "subscribe") standing.add(nonce);
    if (what === "end") standing.delete(nonce);
    most = Math.max(most, standing.size);
  }
  expect(most).toBe(5);
});

test("no id comes twice of one rail, nor of two", async () => {
  const ids: string[] = [];
  answer = ({ request }) => {
    ids.push(request.id);
    return {};
  };
  const other = callerOn(asker.nc, asker.inboxPrefix);
  for (let n = 0; n < 12; n += 1) {
    for (const { rail } of [rig, other]) await rail.ask({ address: ADDRESS, args: {} }, 5000);
  }
  expect(ids).toHaveLength(24);
  expect(new Set(ids).size).toBe(24);
});
