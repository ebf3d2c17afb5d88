/** Two spaces on one broker: no byte of one is seen, stored, answered or settled in the other. */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { targets, baits } from "../support/attacks.ts";
import { frontRoot, personOf } from "../support/holders.ts";
import { createProber, tap } from "../support/probe.ts";
import { api, put } from "../support/raw-jetstream.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { type Difference, difference, pictureOf } from "../support/store-picture.ts";
import { type Person, caller, dash, dot } from "./expected/kit.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
let alice: Minted;
let eve: Minted;
let [inA, inB]: [NatsConnection | undefined, NatsConnection | undefined] = [undefined, undefined];

const SCOPE = { subscribe: [">"], publish: [">"], role: "reviewer" };

beforeAll(async () => {
  space = await startSpace({ spaces: ["alpha", "beta"] });
  // The same names in both: only the space differs.
  alice = await space.mint({ actor: "same", space: "alpha", ...SCOPE });
  eve = await space.mint({ actor: "same", space: "beta", ...SCOPE });
  [inA, inB] = [await space.connect(alice), await space.connect(eve)];
}, 60_000);

afterAll(() => space.stop());

const a = (): NatsConnection => inA ?? fail();
const b = (): NatsConnection => inB ?? fail();
const fail = (): never => {
  throw new Error("not connected");
};

/** Everything a member does in alpha, once on each rail. */
async function live(nc: NatsConnection, me: Person): Promise<void> {
  const at = "alpha";
  await put(nc, `cotal.${at}.chat.${dot(me)}.general`, "chat");
  await put(nc, `cotal.${at}.inst.${dot(me)}.${dot(me)}`, "letter");
  await put(nc, `cotal.${at}.svc.reviewer.${dot(me)}`, "job");
  await put(nc, `$KV.cotal_presence_${at}.${dot(me)}`, "{}");
  for (const rail of ["take.reviewer", "live.delivery", "live.manager"])
    nc.publish(`cotal.${at}.${rail}.${dot(me)}`, "{}");
  nc.publish(`cotal.${at}.ep.one.provisioner.space.${caller(me)}.${"n".repeat(26)}`, "{}");
  await nc.flush();
}

describe("W2.01 W9.02 two spaces", () => {
  test("the same person has another owner token in each, so nothing carries over", () => {
    expect(personOf(alice).owner).not.toBe(personOf(eve).owner);
  });

  test("whoever hears everything in beta's front and store hears no byte of alpha's", async () => {
    const listeners = [await frontRoot(space, "beta"), await space.store("beta")];
    const heard = await Promise.all(listeners.map((nc) => tap(nc, ">")));
    const control = await tap(await frontRoot(space, "alpha"), ">");
    await live(a(), personOf(alice));
    await until("alpha heard itself", () =>
      control.subjects().some((subject) => subject.startsWith("cotal.alpha.live.manager")),
    );
    for (const nc of listeners) await nc.flush();
    const foreign = heard.flatMap(({ messages }) =>
      messages.filter(({ subject, data }) => /alpha/.test(subject + new TextDecoder().decode(data))),
    );
    expect(foreign.map(({ subject }) => subject)).toEqual([]);
    for (const one of [...heard, control]) one.stop();
  });

  test("a member of beta subscribes to and publishes nothing of alpha", async () => {
    const [them, me] = [personOf(alice), personOf(eve)];
    const probes = [
      ...[
        ">",
        "cotal.>",
        "cotal.alpha.>",
        "cotal.alpha.chat.>",
        "cotal.alpha.chat.*.*.general",
        "cotal.*.chat.*.*.>",
        "$KV.cotal_presence_alpha.>",
        `_INBOX_${them.connId}.>`,
      ].map((subject) => ({ op: "sub" as const, subject })),
      ...[
        `cotal.alpha.chat.${dot(me)}.general`,
        `cotal.alpha.chat.${dot(them)}.general`,
        `cotal.alpha.inst.${dot(them)}.${dot(me)}`,
        `cotal.alpha.svc.reviewer.${dot(me)}`,
        `cotal.alpha.ep.one.provisioner.space.${caller(me)}.${"n".repeat(26)}`,
        `$KV.cotal_presence_alpha.${dot(me)}`,
        `$JS.API.CONSUMER.MSG.NEXT.DM_alpha.dm_${dash(them)}`,
        `$JS.API.CONSUMER.MSG.NEXT.TASK_alpha.svc_reviewer`,
        `$JS.ACK.TASK_alpha.svc_reviewer.1.1.1.0.0`,
      ].map((subject) => ({ op: "pub" as const, subject })),
    ];
    expect(await createProber(b()).refused(probes)).toEqual(probes);
  });

  test("even a user without limits in beta's front, or in beta's store, moves nothing in alpha", async () => {
    const alpha = await space.store("alpha");
    const before = await pictureOf(alpha);
    for (const nc of [await frontRoot(space, "beta"), await space.store("beta")]) {
      const all = targets("alpha", personOf(alice));
      for (const subject of all) for (const bait of baits("alpha")) nc.publish(subject, bait);
      for (const reply of all) nc.publish(`cotal.beta.chat.${dot(personOf(eve))}.general`, "{}", { reply });
      await nc.flush();
    }
    await put(a(), `cotal.alpha.svc.nobody.${dot(personOf(alice))}`, "order");
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { added, lost, moved }: Difference = difference(before, await pictureOf(alpha));
    expect([lost.filter(({ stream }) => !stream.includes("presence")), moved]).toEqual([[], []]);
    expect(added.map(({ subject }) => subject)).toEqual([`cotal.alpha.svc.nobody.${dot(personOf(alice))}`]);
  });

  test("a reply that is a pattern, sent in beta, cuts no answer that waits in alpha", async () => {
    const me = personOf(alice);
    const inbox = await tap(a(), `_INBOX_${me.connId}.wait.*`);
    const next = `$JS.API.CONSUMER.MSG.NEXT.DLV_alpha.dlv_${dash(me)}`;
    a().publish(next, JSON.stringify({ batch: 1, expires: 20e9 }), { reply: `_INBOX_${me.connId}.wait.1` });
    const alpha = await space.store("alpha");
    const waits = async (): Promise<boolean> =>
      (await api(alpha, `CONSUMER.INFO.DLV_alpha.dlv_${dash(me)}`))["num_waiting"] === 1;
    await until("the pull waits", waits);
    for (const reply of [">", "*.>", "*.*.*"])
      b().publish(`cotal.beta.chat.${dot(personOf(eve))}.general`, "x", { reply });
    await b().flush();
    await new Promise((resolve) => setTimeout(resolve, 200));
    await put(alpha, `cotal.alpha.dlv.${dot(me)}.${me.uid}`, "copy");
    await until("the copy came", () => inbox.messages.length === 1);
    expect(inbox.messages.map((message) => message.string())).toEqual(["copy"]);
    inbox.messages[0]?.respond("+ACK");
    inbox.stop();
  });

  test("no client of a space reaches its store: JetStream is not there in front", async () => {
    const root = await frontRoot(space, "alpha");
    for (const verb of [
      "INFO",
      "STREAM.NAMES",
      "STREAM.INFO.CHAT_alpha",
      "STREAM.MSG.GET.CHAT_alpha",
      "CONSUMER.LIST.DM_alpha",
    ]) {
      const answer = await root.request(`$JS.API.${verb}`, "", { timeout: 2000 }).then(
        (message) => message.json<{ error?: { err_code: number } }>().error?.err_code,
        () => "nobody",
      );
      // Nobody, or: JetStream is not enabled for the account.
      expect(["nobody", 10_039]).toContain(answer);
    }
  });

  test("a third space is added beside them: what is there stays as it was, and no connection is cut", async () => {
    const stores = [await space.store("alpha"), await space.store("beta")];
    const before = await Promise.all(stores.map(pictureOf));
    const statuses: string[] = [];
    const watch = async (): Promise<void> => {
      for await (const { type } of a().status()) statuses.push(type);
    };
    void watch();
    await space.addSpace("gamma");
    const after = await Promise.all(stores.map(pictureOf));
    for (const [n, picture] of after.entries()) {
      const { added, lost, moved } = difference(before[n] ?? new Map(), picture);
      expect([added, lost.filter(({ stream }) => !stream.includes("presence")), moved]).toEqual([[], [], []]);
    }
    await put(a(), `cotal.alpha.chat.${dot(personOf(alice))}.general`, "still here");
    expect(statuses.filter((type) => type === "disconnect" || type === "reconnect")).toEqual([]);
    expect((await api(await space.store("gamma"), "STREAM.NAMES"))["total"]).toBe(
      (await api(stores[0] ?? a(), "STREAM.NAMES"))["total"],
    );
  });
});
