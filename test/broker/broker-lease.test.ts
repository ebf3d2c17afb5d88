/** Lease rows (H53) on a real broker, with a clock of the test's. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { ensureStreams } from "../../shared/broker/ensure.ts";
import { type Hold, LEASE_TTL_MS, type TakeResult, readLease, takeLease } from "../../shared/broker/lease.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { ownBroker } from "../support/own-broker.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let link: Connection;

beforeAll(async () => {
  broker = await startBroker();
  link = await open(broker);
  await ensureStreams(link.nc, spaceStreams("s", { replicas: 1 }));
});

afterAll(async () => {
  await link?.close();
  await broker?.stop();
});

const open = ({ url }: TestBroker): Promise<Connection> =>
  openConnection({ servers: [url], name: "l", inboxPrefix: "_INBOX_l", reconnect: { kind: "endless" } });

const A = { holder: "instance-a", principal: "u_a.delivery" };
const B = { holder: "instance-b", principal: "u_b.delivery" };
const place = (duty: string) => ({ space: "s", service: "delivery", duty });
const later = { brokerNow: () => Promise.resolve(Date.now() + 3_600_000) };

function held(result: TakeResult): Hold {
  if (result.kind !== "held") throw new Error("the lease is busy");
  return result.hold;
}

describe("leases", () => {
  test("a take writes the row of H53 at its key, and its revision is the epoch", async () => {
    const hold = held(await takeLease(link.nc, { ...place("fanout"), n: 3 }, A, { now: () => 1234 }));
    const entry = await leaderLast(link.nc, "KV_cotal_leases_s", "$KV.cotal_leases_s.lease.delivery.fanout.3");
    expect(entry?.seq).toBe(hold.epoch);
    expect(JSON.parse(new TextDecoder().decode(entry?.data))).toEqual({ v: 1, ...A, epoch: 0, ready: false, at: 1234 });
    expect(await readLease(link.nc, { ...place("fanout"), n: 3 })).toMatchObject({ epoch: hold.epoch, row: A });
    expect(await hold.renew(true)).toBe(true);
    expect(await readLease(link.nc, { ...place("fanout"), n: 3 })).toMatchObject({
      epoch: hold.epoch,
      row: { epoch: hold.epoch, ready: true },
    });
    expect(await hold.renew()).toBe(true);
    expect((await readLease(link.nc, { ...place("fanout"), n: 3 }))?.row.ready).toBe(true);
  });

  test("another holder finds it busy while it is young, and learns whose it is", async () => {
    const hold = held(await takeLease(link.nc, place("busy"), A));
    expect(await takeLease(link.nc, place("busy"), B)).toMatchObject({ kind: "busy", row: A });
    expect(await hold.renew()).toBe(true);
  });

  test("of two that take at once one holds, and the other sees it", async () => {
    const ran = await Promise.all([takeLease(link.nc, place("race"), A), takeLease(link.nc, place("race"), B)]);
    expect(ran.map(({ kind }) => kind).toSorted()).toEqual(["busy", "held"]);
  });

  test("an expired one is taken over with a larger epoch; the old holder loses at its next renewal, and for good", async () => {
    const old = held(await takeLease(link.nc, place("expired"), A));
    await old.renew(true);
    const taken = held(await takeLease(link.nc, place("expired"), B, later));
    expect(taken.epoch).toBeGreaterThan(old.epoch);
    expect(old.isHeld()).toBe(true);
    expect(await old.renew()).toBe(false);
    expect(old.isHeld()).toBe(false);
    expect(await old.renew()).toBe(false);
    await old.release();
    expect(await taken.renew(true)).toBe(true);
    expect(await readLease(link.nc, place("expired"))).toMatchObject({ row: B, epoch: taken.epoch });
  });

  test("the bound of the age is 15 s by the broker's clock, whatever the hosts' clocks say", async () => {
    const hold = held(await takeLease(link.nc, place("bound"), A, { now: () => 0 }));
    const time = (await readLease(link.nc, place("bound")))?.timeMs ?? 0;
    const at = (ms: number) => ({ brokerNow: () => Promise.resolve(time + ms), now: () => 9e15 });
    expect(await takeLease(link.nc, place("bound"), B, at(LEASE_TTL_MS - 1))).toMatchObject({ kind: "busy" });
    expect(await takeLease(link.nc, place("bound"), B, at(-60_000))).toMatchObject({ kind: "busy" });
    expect(await takeLease(link.nc, place("bound"), B, at(LEASE_TTL_MS))).toMatchObject({ kind: "held" });
    expect(await hold.renew()).toBe(false);
  });

  test("time alone ends no hold: a holder that slept past the bound, unchallenged, still holds", async () => {
    const hold = held(await takeLease(link.nc, place("slept"), A, later));
    expect(hold.isHeld()).toBe(true);
    expect(await hold.renew()).toBe(true);
  });

  test("a released one is free at once, and the next epoch is larger", async () => {
    const hold = held(await takeLease(link.nc, place("free"), A));
    await hold.renew();
    await hold.release();
    expect(hold.isHeld()).toBe(false);
    expect(await readLease(link.nc, place("free"))).toBeUndefined();
    const next = held(await takeLease(link.nc, place("free"), B));
    expect(next.epoch).toBeGreaterThan(hold.epoch);
    await hold.release();
    expect(await readLease(link.nc, place("free"))).toMatchObject({ row: B });
  });

  test("the same holder takes its own back at once; the hold it had before is lost", async () => {
    const before = held(await takeLease(link.nc, place("again"), A));
    await before.renew();
    const after = held(await takeLease(link.nc, place("again"), A));
    expect(after.epoch).toBeGreaterThan(before.epoch);
    expect(await before.renew()).toBe(false);
    expect(await after.renew()).toBe(true);
  });

  test("a row that does not parse holds for its time too, and is then taken by compare-and-set", async () => {
    const subject = "$KV.cotal_leases_s.lease.delivery.odd";
    const data = new TextEncoder().encode(JSON.stringify({ v: 2, holder: "newer" }));
    await createWriter({ nc: link.nc }).create("KV_cotal_leases_s", subject, data);
    expect(await takeLease(link.nc, place("odd"), A)).toEqual({ kind: "busy", row: undefined });
    expect(await takeLease(link.nc, place("odd"), A, later)).toMatchObject({ kind: "held" });
  });

  test("a renewal whose answer was lost is adopted, not given up", async () => {
    const hold = held(await takeLease(link.nc, place("lost"), A));
    const found = await readLease(link.nc, place("lost"));
    // What a renewal wrote without its holder hearing of it.
    const data = new TextEncoder().encode(JSON.stringify({ ...found?.row, epoch: hold.epoch }));
    const subject = "$KV.cotal_leases_s.lease.delivery.lost";
    await createWriter({ nc: link.nc }).cas("KV_cotal_leases_s", subject, data, found?.revision ?? 0);
    expect(await hold.renew()).toBe(true);
    expect(hold.isHeld()).toBe(true);
  });

  test("a broker that can't be asked ends no hold, and the holder goes on when it is back", async () => {
    const own = await ownBroker();
    const away = await open(own);
    await ensureStreams(away.nc, spaceStreams("s", { replicas: 1 }));
    const hold = held(await takeLease(away.nc, place("away"), A));
    await own.kill();
    const error = await failure(hold.renew());
    expect(["unavailable", "deadline-exceeded"]).toContain(error.code);
    expect(hold.isHeld()).toBe(true);
    await own.restart();
    await away.up(20_000);
    await expect.poll(() => hold.renew().catch(() => "not yet"), { timeout: 15_000 }).toBe(true);
    await away.close();
  });
});
