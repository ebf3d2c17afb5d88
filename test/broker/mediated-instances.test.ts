/** Several processes read for one space: each answers a share, and one that dies takes nothing with it. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { takeInstance } from "../../shared/broker/instance.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { daemonInstance, isInstanceOf } from "../../shared/protocol/endpoint/instances.ts";
import { HistoryAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";
import { until } from "../support/until.ts";

const POSTS = 60;
const PAGE = 7;

let space: TestSpace;
let daemons: readonly [DeliveryService, DeliveryService];
let reader: Minted;
let call: Call;

beforeAll(async () => {
  space = await startSpace();
  daemons = [startDeliveryService(space), startDeliveryService(space)];
  reader = await space.mint({ actor: "reader", subscribe: ["news"], publish: ["news"] });
  const connection = await space.open(reader);
  const { principal, uid } = reader.view;
  const denials = watchDenials(connection.nc);
  const { nc, inboxPrefix } = connection;
  call = createCaller({
    nc,
    inboxPrefix,
    denials,
    space: "main",
    caller: { principal, uid },
    name: "reader",
    random: randomBytes,
  });
  for (let index = 0; index < POSTS; index += 1) {
    await nc.request(`cotal.main.chat.${principal.owner}.${principal.actor}.news`, JSON.stringify({ index }));
  }
  await daemons[1].ready();
}, 60_000);
afterAll(async () => {
  await daemons[1].kill("SIGTERM");
  await space.stop();
});

async function page(fromSeq: number, deadlineMs = 10_000) {
  const { data, instanceId } = await call(
    "delivery",
    "history",
    { channel: "news", fromSeq, limit: PAGE },
    { deadlineMs },
  );
  const { messages, nextSeq } = HistoryAnswer.parse(data);
  return {
    indexes: messages.map(({ data: text }) => (JSON.parse(text) as { index: number }).index),
    nextSeq,
    instanceId,
  };
}

const ALL = Array.from({ length: POSTS }, (_, index) => index);

/** Reads the whole channel; a page that nobody answered is asked for again. What came between is told. */
async function everything(
  deadlineMs = 10_000,
): Promise<{ readonly read: number[]; readonly by: Set<string>; readonly met: string[] }> {
  const read: number[] = [];
  const by = new Set<string>();
  const met: string[] = [];
  for (let fromSeq: number | undefined = 1; fromSeq !== undefined;) {
    try {
      const { indexes, nextSeq, instanceId }: Awaited<ReturnType<typeof page>> = await page(fromSeq, deadlineMs);
      read.push(...indexes);
      by.add(instanceId);
      fromSeq = nextSeq;
    } catch (thrown) {
      const { code, outcome } = toCotalError(thrown);
      met.push(`${code} ${outcome}`);
    }
  }
  return { read, by, met };
}

describe("two processes of the delivery service", () => {
  test("W8.07 A.03 share the reads: pages of both make one whole history, and neither is taken for a stale one", async () => {
    const by = new Set<string>();
    await until("both have answered", async () => {
      const whole = await everything();
      expect([whole.read, whole.met]).toEqual([ALL, []]);
      for (const instance of whole.by) by.add(instance);
      return by.size === 2;
    });
  }, 60_000);

  test("W8.07 A.03 one that is frozen and killed in the middle of a page: the page is unknown, never short, and the other answers", async () => {
    const [first] = daemons;
    stopProcess(first.pid());
    const met = new Set<string>();
    await until("a page was asked of the one that is frozen", async () => {
      const whole = await everything(1000);
      expect(whole.read).toEqual(ALL);
      for (const what of whole.met) met.add(what);
      return met.size > 0;
    });
    await first.kill("SIGKILL");
    expect([...met]).toEqual(["deadline-exceeded unknown"]);
    // A page may still have been sent to it before the broker knew.
    await until(
      "it is asked no more",
      async () => {
        const whole = await everything();
        expect(whole.read).toEqual(ALL);
        return whole.met.length === 0 && whole.by.size === 1;
      },
      60_000,
    );
    first.restart();
    await first.ready();
    const by = new Set<string>();
    await until("it answers again", async () => {
      const again = await everything();
      expect([again.read, again.met]).toEqual([ALL, []]);
      for (const instance of again.by) by.add(instance);
      return by.size === 2;
    });
  }, 120_000);

  test("W8.07 PD.07 with nobody left a read says that nothing ran, and is no empty history", async () => {
    for (const daemon of daemons) await daemon.kill("SIGKILL");
    const ends = new Set<string>();
    await until("the broker says that nobody is there", async () => {
      const { code, outcome } = await failure(page(1, 1000));
      ends.add(`${code} ${outcome}`);
      return code === "unavailable" && outcome === "not-executed";
    });
    // Before it knew, a page may have been sent to one that was dead.
    ends.delete("deadline-exceeded unknown");
    expect([...ends]).toEqual(["unavailable not-executed"]);
    for (const daemon of daemons) daemon.restart();
    for (const daemon of daemons) await daemon.ready();
    expect((await everything()).read).toEqual(ALL);
  }, 60_000);
});

describe("which instance a process is", () => {
  const who = (holder: string) => ({ holder, principal: "p" });

  test("W132.12 A.03 each number is one process's at a time, and free again when that one stops", async () => {
    const store = await space.store();
    const uid = drawLifecycleUid(randomBytes);
    // The space's own two hold the first numbers, unless one of them was killed a moment ago.
    const [one, two] = [
      await takeInstance(store, { space: "main", service: "delivery", uid: uid }, who("a.1")),
      await takeInstance(store, { space: "main", service: "delivery", uid: uid }, who("a.2")),
    ];
    expect(one.id).not.toBe(two.id);
    expect([one.id, two.id].every((id) => isInstanceOf(uid, id))).toBe(true);
    await one.stop();
    const three = await takeInstance(store, { space: "main", service: "delivery", uid: uid }, who("a.3"));
    expect(three.id).toBe(one.id);
    await Promise.all([two.stop(), three.stop()]);
  }, 30_000);

  test("A.03 one that another has taken over is told, and lets go of nothing that is the other's", async () => {
    const store = await space.store();
    const uid = drawLifecycleUid(randomBytes);
    const mine = await takeInstance(store, { space: "main", service: "delivery", uid: uid }, who("b.1"));
    const n = Array.from({ length: 64 }, (_, at) => at).find((at) => daemonInstance(uid, at) === mine.id) ?? -1;
    const subject = `$KV.cotal_leases_main.lease.delivery.instance.${n}`;
    const stream = "KV_cotal_leases_main";
    const writer = createWriter({ nc: store });
    const theirs = JSON.stringify({ v: 1, holder: "b.2", principal: "p", epoch: 1, ready: true, at: 0 });
    await until("the row is another's", async () => {
      const row = await leaderLast(store, stream, subject);
      return writer.cas(stream, subject, new TextEncoder().encode(theirs), row?.seq ?? 0).then(
        () => true,
        () => false,
      );
    });
    expect(await mine.lost).toMatchObject({ code: "expired" });
    await mine.stop();
    const left = await leaderLast(store, stream, subject);
    expect(new TextDecoder().decode(left?.data)).toBe(theirs);
  }, 30_000);

  test("W132.12 the first instance of a daemon is its own lifecycle, and no other's is one of them", () => {
    const uid = "u".repeat(26);
    expect(daemonInstance(uid, 0)).toBe(uid);
    const all = Array.from({ length: 64 }, (_, n) => daemonInstance(uid, n));
    expect(new Set(all).size).toBe(64);
    expect(all.every((id) => /^[a-z0-9]{26,32}$/.test(id) && isInstanceOf(uid, id))).toBe(true);
    expect(isInstanceOf(uid, daemonInstance("v".repeat(26), 1))).toBe(false);
  });
});
