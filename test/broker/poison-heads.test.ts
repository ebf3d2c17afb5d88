/**
 * What nobody can show at the head of every line at once: the posts, a member's copies, its letters, the queue of its
 * role. A member that was away comes back to it, with the real daemon, and everything behind surfaces. Whoever wrote
 * the poison was no client of the space: this holds even where a stream's own writer was wrong.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { api, dump, put } from "../support/raw-jetstream.ts";
import { take, texts } from "../support/sessions.ts";
import { markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let store: NatsConnection;

beforeAll(async () => {
  world = await startDeliveryWorld();
  store = await world.space.store();
}, 60_000);
afterAll(() => world.stop());

const ROLE = "poisoned";

/** Bytes that are no message of this sender: nothing, no JSON, no object, no id, an id of another type, somebody else's name. */
function junk(id: string, route: object): string[] {
  const whole = {
    id: "p",
    ts: 1,
    space: "main",
    from: { id, name: "x" },
    parts: [{ kind: "text", text: "x" }],
    ...route,
  };
  const broken = [
    { id: undefined },
    { id: 7 },
    { id: null },
    { from: { id: "u_x.other", name: "x" } },
    { from: undefined },
  ];
  return [
    "",
    "{",
    "[]",
    "\u0000",
    ...[...broken, { parts: undefined }].map((change) => JSON.stringify({ ...whole, ...change })),
  ];
}

/** As long as the broker takes one: first as junk, then as JSON of this shape. */
function longest(message: object): string[] {
  const most = store.info?.max_payload ?? 0;
  const filled = (text: string): string => JSON.stringify({ ...message, parts: [{ kind: "text", text }] });
  return ["x".repeat(most), filled("y".repeat(most - filled("").length))];
}

test("W4.11 W5.09 W81.06 W8.11 at the head of CHAT, DLV, DM and TASK: the lines move on, nothing comes twice, and the daemon lives", async () => {
  const role = { role: ROLE, subscribe: ["poisoned.>"], publish: ["poisoned.>"] };
  const credential = await world.space.mint({ actor: "member", ...role });
  const open = () => world.sessions.own({ credentials: { kind: "static", text: credential.text } });
  const from = await world.sessions.minted({ actor: "sender", ...role });
  const first = await open();
  expect(await first.join("poisoned.room")).toMatchObject({ state: "joined durable" });
  await first.close();
  const pid = world.delivery.pid();

  const [me, it] = [from.me.id, first.me.id];
  const dlv = `cotal.main.dlv.${it}.${first.me.uid}`;
  const lines: [string, object][] = [
    [`cotal.main.chat.${me}.poisoned.room`, { channel: "poisoned.room" }],
    [`cotal.main.inst.${it}.${me}`, { to: it }],
    [`cotal.main.svc.${ROLE}.${me}`, { toService: ROLE }],
  ];
  const stored = async (subject: string, data: string, headers = {}): Promise<void> => {
    expect((await put(store, subject, data, headers)).error).toBeUndefined();
  };
  for (const [subject, route] of lines) {
    for (const bytes of junk(me, route)) await stored(subject, bytes);
    const [bytes = "", message = ""] = longest({
      id: "long",
      ts: 1,
      space: "main",
      from: { id: me, name: "x" },
      ...route,
    });
    await stored(subject, bytes);
    // One that is whole is a lawful letter, and a lawful request: only its copies would be too long.
    if (subject.includes(".chat.")) await stored(subject, message);
  }
  // Of another arity, or under tokens that are no principal, within what the stream and the durable take.
  const letter = JSON.stringify({
    id: "a",
    ts: 1,
    space: "main",
    from: { id: me, name: "x" },
    parts: [{ kind: "text", text: "x" }],
  });
  for (const subject of [
    `cotal.main.chat.${me}`,
    `cotal.main.chat.bad-owner.x.poisoned.room`,
    `cotal.main.inst.${it}.one`,
    `cotal.main.inst.${it}.${me}.more`,
    `cotal.main.inst.${it}.bad-owner.x`,
    `cotal.main.svc.${ROLE}.one`,
    `cotal.main.svc.${ROLE}.${me}.more`,
  ]) {
    await stored(subject, letter);
  }
  const source = { "Cotal-Source-Subject": `cotal.main.chat.${me}.poisoned.room`, "Cotal-Source-Sequence": "1" };
  for (const bytes of junk(me, { channel: "poisoned.room" })) await stored(dlv, bytes, source);
  await stored(dlv, "x".repeat(1_000_000), source);
  for (const wrong of ["", "cotal.main.chat.x", `cotal.main.inst.${it}.${me}`, `cotal.main.chat.${me}`]) {
    await stored(dlv, letter, { ...source, "Cotal-Source-Subject": wrong });
  }
  await stored(dlv, letter);

  const sent = [
    await from.send("poisoned.room", "the post behind it"),
    await from.dm(it, "the letter behind it"),
    await from.ask(ROLE, "the request behind it"),
  ];
  const second = await open();
  await second.join("poisoned.room", { replay: false });
  expect(texts(await take(second, 3)).toSorted()).toEqual([
    "the letter behind it",
    "the post behind it",
    "the request behind it",
  ]);
  const durable = it.replace(".", "-");
  for (const consumer of [
    `DM_main.dm_${durable}-${first.me.uid}`,
    `DLV_main.dlv_${durable}-${first.me.uid}`,
    `TASK_main.svc_${ROLE}`,
  ]) {
    await until(`${consumer} is empty`, async () => {
      const info = await api(store, `CONSUMER.INFO.${consumer}`);
      return info["num_pending"] === 0 && info["num_ack_pending"] === 0;
    });
    // Each was handed out once.
    const info = (await api(store, `CONSUMER.INFO.${consumer}`)) as unknown as {
      delivered: { consumer_seq: number };
      num_redelivered: number;
    };
    expect([consumer, info.num_redelivered]).toEqual([consumer, 0]);
  }
  expect((await dump(store, "TASK_main")).map(({ subject }) => subject)).toEqual([]);
  expect(second.stats().redelivered).toBe(0);
  // Each once, with its reason; those at the head of CHAT were passed over by the daemon.
  expect(second.stats().rejected).toEqual({
    "malformed-json": 12,
    "malformed-envelope": 16,
    "sender-mismatch": 6,
    "malformed-subject": 9,
  });
  expect((await markerOf(store))?.sequence).toBe(sent[0]?.seq);
  // History is read past it, too.
  expect(texts(await second.history("poisoned.room")).at(-1)).toBe("the post behind it");
  const forwards = await second.history("poisoned.room", { fromSeq: 1, limit: 1000 });
  expect(texts(forwards).at(-1)).toBe("the post behind it");
  expect(world.delivery.pid()).toBe(pid);
}, 60_000);
