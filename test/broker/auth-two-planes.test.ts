/** Two authority planes for one space, as processes: one holds, whoever of them stands still or comes back (§13.13). */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";

const HELD = "this process holds the authority plane";
const LOST = "a scanner of the authority plane has died";
const WAITS = "another process holds the authority plane";
const { auth: bucket } = spaceNames("main").bucket;

let space: TestSpace;
let store: NatsConnection;
let first: AuthService;
let second: AuthService;
beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  store = await space.store();
  first = await startAuthService(space, { waitMs: 60_000 });
  second = await startAuthService(space, { name: "second", waitMs: 60_000 });
}, 120_000);
afterAll(async () => {
  await second.stop();
  await first.stop();
  await space.stop();
});

async function plane(): Promise<PlaneRow | undefined> {
  const entry = await leaderLast(store, bucketStream(bucket), kvKey(bucket, "plane")).catch(() => undefined);
  return entry === undefined ? undefined : PlaneRow.parse(JSON.parse(new TextDecoder().decode(entry.data)));
}

const times = (log: string, words: string): number => log.split(words).length - 1;
const WAIT = { timeout: 60_000 } as const;

test("PI.01 a holder that stands still keeps the plane until it is proved gone; when it goes on it holds nothing", async () => {
  await expect.poll(() => first.log(), WAIT).toContain(HELD);
  await expect.poll(() => second.log(), WAIT).toContain(WAITS);
  const before = await plane();
  stopProcess(first.pid());
  try {
    // Silence proves nothing: its connection is there. A third one that starts meanwhile finds the same.
    const third = await startAuthService(space, { name: "third", waitMs: 60_000 });
    await expect.poll(() => third.log(), WAIT).toContain(WAITS);
    await third.stop();
    expect(await plane()).toEqual(before);
    expect(second.log()).not.toContain(HELD);
    // With the broker its connection is gone for good, and that is proof.
    await space.broker.kill();
    await space.broker.restart();
    await expect.poll(() => second.log(), WAIT).toContain(HELD);
  } finally {
    process.kill(first.pid(), "SIGCONT");
  }
  await expect.poll(() => first.log(), WAIT).toContain(LOST);
  await expect.poll(() => times(first.log(), WAITS), WAIT).toBe(1);
  const after = await plane();
  expect(after).toMatchObject({ state: "held" });
  expect(after?.claimId).not.toBe(before?.claimId);
  // It never held it again, and nobody was restarted.
  expect([times(first.log(), HELD), times(second.log(), HELD)]).toEqual([1, 1]);
}, 240_000);
