/** The bell of the member groups: whatever there is wakes everybody, and silence costs next to nothing. */
import { type MsgHdrs, connect, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Bell, createBell } from "../../services/delivery/fanout/bell.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { type FanoutRig, startFanoutRig } from "../support/fanout-rig.ts";
import { until } from "../support/until.ts";

/** Nobody waits that long: only a ring ends it. */
const FOR_EVER = 600_000;
const GROUPS = 32;

let rig: FanoutRig;
beforeAll(async () => {
  rig = await startFanoutRig();
}, 60_000);
afterAll(() => rig.stop());

const withOthers = (bell: Bell): Bell[] => [bell, ...Array.from({ length: GROUPS }, () => bell.another())];
const allWoken = (bells: readonly Bell[]) => Promise.all(bells.map((bell) => bell.wait(FOR_EVER)));

/** A connection that doesn't hear what it says itself: as where a ring is lost, or comes long before its post. */
async function deaf(work: (nc: Awaited<ReturnType<typeof connect>>, bells: readonly Bell[]) => Promise<void>) {
  const nc = await connect({ servers: rig.broker.url, noEcho: true });
  const bell = createBell(nc, "main");
  const bells = withOthers(bell);
  try {
    // The first look tells of what is there already, and no later one does.
    await allWoken(bells);
    await work(nc, bells);
  } finally {
    bell.stop();
    await nc.close();
  }
}

/** Headers with which no stream of ours stores anything. */
function toAnother(): MsgHdrs {
  const sent = headers();
  sent.set(Header.ExpectedStream, "another");
  return sent;
}

test("a post and a read list wake everybody who waits, and the end does too", async () => {
  const bell = createBell(rig.nc, "main");
  const bells = withOthers(bell);
  const ends = async (): Promise<void> => bell.stop();
  for (const rung of [() => rig.post("bell", "one"), () => rig.member("listed"), ends]) {
    const woken = allWoken(bells);
    await rung();
    expect(await woken).toHaveLength(GROUPS + 1);
  }
});

test("a post that was not heard, or not yet to be read, is found and wakes everybody", async () => {
  await deaf(async (nc, bells) => {
    const woken = allWoken(bells);
    await nc.request(rig.posterSubject("bell"), "unheard");
    expect(await woken).toHaveLength(GROUPS + 1);
  });
});

test("who rings at one bell wakes who waits at that; while nothing comes the store is asked once for all of them, ever more seldom", async () => {
  await deaf(async (nc, bells) => {
    const [own, ...others] = bells;
    let woken = 0;
    const waiting = others.map(async (bell) => {
      await bell.wait(FOR_EVER);
      woken += 1;
    });
    const [before, began] = [nc.stats().outMsgs, performance.now()];
    own?.ring();
    await own?.wait(FOR_EVER);
    // Heard, and stored by nobody.
    await rig.nc.request(rig.posterSubject("bell"), "refused", { headers: toAnother(), timeout: 10_000 });
    await Promise.all(waiting);
    expect(woken).toBe(GROUPS);
    const again = others.map((bell) => bell.wait(FOR_EVER).then(() => (woken += 1)));
    await until("there was silence for a while", () => Promise.resolve(performance.now() - began > 2000), 60_000);
    // Two requests a look: ten soon after the beginning, ten soon after the ring, and then one a second.
    expect(nc.stats().outMsgs - before).toBeLessThanOrEqual(2 * (10 + 10 + 2 + (performance.now() - began) / 1000));
    expect(woken).toBe(GROUPS);
    for (const bell of others) bell.ring();
    await Promise.all(again);
  });
});
