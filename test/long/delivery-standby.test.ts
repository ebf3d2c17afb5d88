/**
 * Several processes of the delivery service for one space: who writes is killed or stopped, and another takes over;
 * what a stopped one was about to write when it went on is not stored (§4, §7). Counted from the streams.
 */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { readLease } from "../../shared/broker/lease.ts";
import { joining, startFanoutRig } from "../support/fanout-rig.ts";
import { inGroups } from "../support/member-groups.ts";
import { type Sessions, type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";
import { copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 180_000 });

const FANOUT = { space: "main", service: "delivery", duty: "fanout" };

/** A lease expires after fifteen seconds; the rest is for a slow machine. */
const TAKEOVER_MS = 60_000;

describe("A.03 two processes of the delivery service", () => {
  let space: TestSpace;
  let sessions: Sessions;
  let store: NatsConnection;
  let speaker: TestSession;
  const daemons: DeliveryService[] = [];

  beforeAll(async () => {
    space = await startSpace();
    daemons.push(startDeliveryService(space));
    await daemons[0]?.ready();
    store = await space.store();
    sessions = sessionsOf(space);
    speaker = await sessions.minted({ actor: "speaker", subscribe: [">"], publish: [">"] });
    await until("a writer is there", async () => (await markerOf(store)) !== undefined);
    daemons.push(startDeliveryService(space));
    await daemons[1]?.ready();
    await settled(daemons[1]);
  }, 120_000);
  afterAll(async () => {
    await sessions.closeAll();
    await Promise.all(daemons.map((daemon) => daemon.kill("SIGKILL")));
    await space.stop();
  });

  /** Whose lease it is, by what each process says of itself: a lease names uid and epoch. */
  async function writer(): Promise<DeliveryService | undefined> {
    const entry = await store.request(
      "$JS.API.STREAM.MSG.GET.KV_cotal_leases_main",
      JSON.stringify({ last_by_subj: "$KV.cotal_leases_main.lease.delivery.fanout.0" }),
    );
    const { message } = entry.json() as { message?: { data?: string } };
    const row = JSON.parse(Buffer.from(message?.data ?? "", "base64").toString() || "{}") as { holder?: string };
    const epoch = row.holder?.split(".")[1];
    return daemons.find((daemon) => daemon.log().includes(`"epoch":${epoch},`));
  }
  /** The later one writes. */
  const settled = (later: DeliveryService | undefined): Promise<void> =>
    until("the later one writes", async () => (await writer()) === later, TAKEOVER_MS);
  const copies = async ({ me }: TestSession) => (await copiesOf(store, me)).map(({ text }) => text);
  const passed = (seq: number) =>
    until("the fan-out has passed it", async () => ((await markerOf(store))?.sequence ?? 0) >= seq, TAKEOVER_MS);
  const other = (one: DeliveryService | undefined) => daemons.find((daemon) => daemon !== one);

  async function expectTakenOver(who: TestSession, channel: string, active: DeliveryService | undefined) {
    await until("the other one writes", async () => (await writer()) === other(active), TAKEOVER_MS);
    // It serves as the current incarnation: who has heard the one before believes it all the same.
    await until(
      "changes of memberships are served",
      async () => (await who.join(`${channel}.more`, { replay: false })).state === "joined durable",
      TAKEOVER_MS,
    );
    expect((await rowsOf(store, who.me)).map(({ pattern, state }) => `${pattern} ${state}`)).toEqual([
      `${channel} joined`,
      `${channel}.more joined`,
    ]);
  }

  test("W4.04 the one that writes is killed: the other takes over, nothing is missed, nothing comes twice", async () => {
    const who = await sessions.minted({ actor: "first", subscribe: [">"], publish: [">"] });
    expect(await who.join("k", { replay: false })).toMatchObject({ state: "joined durable" });
    const active = await writer();
    const sent: string[] = [];
    const say = async (count: number): Promise<number> => {
      const all = Array.from({ length: count }, () => `k${sent.push("") - 1}`);
      let last = 0;
      for (const words of all) last = (await speaker.send("k", words)).seq;
      return last;
    };
    await say(50);
    await active?.kill("SIGKILL");
    await passed(await say(50));
    expect(await copies(who)).toEqual(sent.map((_, n) => `k${n}`));
    await expectTakenOver(who, "k", active);
    active?.restart();
    await active?.ready();
    await settled(active);
  });

  test("W4.04 the one that writes is stopped and goes on later: the other has taken over, nothing comes twice", async () => {
    const who = await sessions.minted({ actor: "second", subscribe: [">"], publish: [">"] });
    expect(await who.join("s", { replay: false })).toMatchObject({ state: "joined durable" });
    const active = await writer();
    stopProcess(active?.pid() ?? 0);
    const wanted: string[] = [];
    try {
      for (let n = 0; n < 100; n += 1) wanted.push(`s${n}`);
      let last = 0;
      for (const words of wanted) last = (await speaker.send("s", words)).seq;
      await passed(last);
      expect(await copies(who)).toEqual(wanted);
      await expectTakenOver(who, "s", active);
    } finally {
      process.kill(active?.pid() ?? 0, "SIGCONT");
    }
    wanted.push("after");
    await passed((await speaker.send("s", "after")).seq);
    expect(await copies(who)).toEqual(wanted);
    expect(texts(await take(who, wanted.length))).toEqual(wanted);
  });
});

test("A.03 member groups are shared: a process that comes later takes its share, and all of them once it is alone", async () => {
  const space = await startSpace({ delivery: false });
  const store = await space.store();
  await inGroups(store, 4);
  const first = startDeliveryService(space);
  await first.ready();
  const holders = async (): Promise<string[]> => {
    const rows = await Promise.all([0, 1, 2, 3].map((n) => readLease(store, { ...FANOUT, n })));
    return rows.flatMap((found) => (found === undefined ? [] : [found.row.holder])).toSorted();
  };
  const counts = async (): Promise<number[]> =>
    Object.entries(Object.groupBy(await holders(), (holder) => holder))
      .filter(([holder]) => holder !== "nobody")
      .map(([, held]) => held?.length ?? 0);
  const daemons = [first];
  try {
    await until("one has them all", async () => (await counts()).includes(4), TAKEOVER_MS);
    const alone = new Set(await holders());
    expect(alone.size).toBe(1);
    const second = startDeliveryService(space);
    daemons.push(second);
    await second.ready();
    await until("each has two", async () => (await counts()).join() === "2,2", TAKEOVER_MS);
    await first.kill("SIGKILL");
    await until(
      "the later one has them all",
      async () => (await counts()).includes(4) && !alone.has((await holders())[0] ?? ""),
      TAKEOVER_MS,
    );
  } finally {
    await Promise.all(daemons.map((one) => one.kill("SIGKILL")));
    await space.stop();
  }
});

test("W8.11 a writer that was stopped in front of its batch, and goes on once it was overtaken, stores nothing of it", async () => {
  const rig = await startFanoutRig();
  const who = await rig.member("stopped");
  const first = rig.run();
  await first.ask(joining(who, "z", await rig.frontier()));
  await first.stop();
  const wanted = Array.from({ length: 30 }, (_, n) => `z${n}`);
  let last = 0;
  for (const words of wanted) last = await rig.post("z", words);
  // Its claim is the first step, and its copies are the second.
  const script = join(import.meta.dirname, "..", "support", "fanout-child.ts");
  const child = spawn(process.execPath, [script, rig.broker.url, "2", "stop"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const heard = new Promise<string>((resolve) => {
      child.stdout.once("data", (bytes: Buffer) => resolve(bytes.toString().trim()));
    });
    const state = () => readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ").at(-1)?.[0];
    await until("it stands still", () => state() === "T", TAKEOVER_MS);
    expect((await markerOf(rig.nc))?.sequence).toBeLessThan(last);
    const second = rig.run();
    await rig.passed(last);
    await second.stop();
    child.kill("SIGCONT");
    expect(await heard).toBe("conflict");
    expect((await copiesOf(rig.nc, who)).map(({ text }) => text)).toEqual(wanted);
  } finally {
    child.kill("SIGKILL");
    await rig.stop();
  }
});
