/**
 * What a member with a lawful credential can write or ask to make a mediated read costly, or to end
 * it for everybody else.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NatsConnection } from "@nats-io/transport-node";
import { dmHistory, history } from "../../services/delivery/mediator/history.ts";
import { type Mediator, mediatorOf } from "../../services/delivery/mediator/mediator.ts";
import { readAcl } from "../../services/delivery/mediator/read-list.ts";
import { type Reads, createReads } from "../../shared/client/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { HistoryAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import type { z } from "zod";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";

type History = z.infer<typeof HistoryAnswer>;

const names = spaceNames("main");
const subjects = spaceSubjects("main");
let space: TestSpace;
let mallory: Minted;
let nc: NatsConnection;

beforeAll(async () => {
  space = await startSpace();
  mallory = await space.mint({ actor: "mallory", subscribe: [">"], publish: [">"] });
  nc = await space.connect(mallory);
});
afterAll(() => space.stop());

/** The SDK's reads, over a caller of the test's own. */
const readsOf = (as: Minted): Reads =>
  createReads(
    async (_endpoint, command, args) => ({
      data: await space.call(command, args, { as }),
      instanceId: "",
      epoch: 0,
    }),
    5000,
  );

/** A read itself, over a connection of its own whose traffic is counted. */
async function counted<T>(
  run: (mediator: Mediator) => Promise<T>,
): Promise<{ readonly answer: T; readonly bytes: number; readonly requests: number }> {
  const store = await space.store();
  const before = store.stats();
  const answer = await run(mediatorOf("main", store, () => Promise.resolve(readAcl([">"]))));
  const after = store.stats();
  return { answer, bytes: after.inBytes - before.inBytes, requests: after.outMsgs - before.outMsgs };
}

describe("presence", () => {
  test("a record that nests past every stack costs its writer his place, and nobody else anything", async () => {
    const pid = space.delivery?.pid();
    const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
    await nc.request(kvKey(names.bucket.presence, dotForm(mallory.view.principal)), deep);
    const { records } = (await space.call("roster", {}, { as: mallory })) as { records: unknown[] };
    expect(records).toContainEqual({ key: dotForm(mallory.view.principal), value: null });
    await space.call("channels", {});
    expect(space.delivery?.pid()).toBe(pid);
    expect(space.delivery?.log()).not.toContain("not caught");
  });

  test("records that grow when they are written anew still fit into pages, and none is missed", async () => {
    const store = await space.store();
    const keys = Array.from({ length: 10 }, (_, index) =>
      dotForm({ ...mallory.view.principal, actor: `big_${index}` }),
    );
    const growing = JSON.stringify("x").replace('"x"', `[${Array.from({ length: 12_000 }, () => "1e20").join(",")}]`);
    for (const key of keys) await store.request(kvKey(names.bucket.presence, key), growing);
    const seen: string[] = [];
    let cursor: number | undefined;
    do {
      const page = await readsOf(mallory).roster({ limit: 1000, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.records.map(({ key }) => key));
      ({ cursor } = page);
    } while (cursor !== undefined);
    expect(seen.filter((key) => key.includes("big_")).toSorted()).toEqual(keys.toSorted());
  });
});

describe("requests", () => {
  test("what is longer than any of a member is refused unread: a flood of it costs no parse, and no connection", async () => {
    const ask = (length: number, deadlineMs: number) =>
      space.call("history", { channel: "general", beside: "x".repeat(length) }, { as: mallory, deadlineMs });
    expect(await ask(15_000, 20_000)).toMatchObject({ messages: [] });
    expect(await failure(ask(17_000, 20_000))).toMatchObject({ code: "bad-request", outcome: "not-executed" });
  });
});

describe("the channel registry", () => {
  test("more settings than one answer holds come in pages, each channel once", async () => {
    const as = await space.mint({ actor: "scribe", profile: "channel-writer" });
    const long = { description: "\u0001".repeat(200), instructions: "\u0001".repeat(2000) };
    const wanted = Array.from({ length: 90 }, (_, index) => `long-${String(index).padStart(2, "0")}`);
    for (const channel of wanted) await space.call("channel-set", { channel, change: long }, { as });
    const { channels, defaults } = await readsOf(mallory).channels();
    expect(channels.map(({ channel }) => channel).filter((channel) => channel.startsWith("long-"))).toEqual(wanted);
    expect(defaults).toEqual({ deliveryClass: "durable" });
  });
});

describe("history", () => {
  const LONG = "x".repeat(16_384);
  const post = (channel: string, index: number, text = ""): void =>
    nc.publish(subjects.chat(mallory.view.principal, channel), JSON.stringify({ index, text }));
  const indexes = ({ messages }: History): number[] =>
    messages.map(({ data }) => (JSON.parse(data) as { index: number }).index);
  const lastOf = (args: { readonly channel: string; readonly last: number; readonly upToSeq?: number }) =>
    counted((mediator) => history(mediator, { principal: mallory.view.principal, uid: mallory.view.uid }, args));

  beforeAll(async () => {
    for (let index = 0; index < 900; index += 1) post("attic", index, LONG);
    for (let index = 0; index < 8000; index += 1) post(`noise-${index % 10}`, index);
    post("attic", 900);
    await nc.request(subjects.chat(mallory.view.principal, "noise-0"), "{}");
  });

  test("the last few of a channel that is rare now and was full once are not paid with all of it", async () => {
    const { answer, bytes } = await lastOf({ channel: "attic", last: 3 });
    expect(indexes(answer)).toEqual([898, 899, 900]);
    expect(bytes).toBeLessThan(4_000_000);
  });

  test("more than one answer holds is not read, and backward pages cover the channel once", async () => {
    const first = await lastOf({ channel: "attic", last: 1000 });
    expect(first.bytes).toBeLessThan(4_000_000);
    let read: number[] = [];
    let upToSeq: number | undefined = Number.MAX_SAFE_INTEGER;
    while (upToSeq !== undefined) {
      const { answer }: { answer: History } = await lastOf({ channel: "attic", last: 1000, upToSeq });
      read = [...indexes(answer), ...read];
      expect(answer.olderUpToSeq ?? 0).toBeLessThan(upToSeq);
      upToSeq = answer.olderUpToSeq;
    }
    expect(read).toEqual(Array.from({ length: 901 }, (_, index) => index));
  });

  test("a channel that has nothing is told to be empty, not to go on", async () => {
    const { answer } = await lastOf({ channel: "nothing-here", last: 5 });
    expect(answer).toEqual({ messages: [] });
  });

  test("a page of direct messages is read no further than it holds", async () => {
    const inbox = subjects.inst(mallory.view.principal, mallory.view.principal);
    for (let index = 0; index < 200; index += 1) {
      await nc.request(inbox, JSON.stringify({ index, text: LONG }));
    }
    const { answer, bytes } = await counted((mediator) => dmHistory(mediator, { limit: 500 }));
    expect(answer.nextSeq).toBeGreaterThan(1);
    expect(bytes).toBeLessThan(1_000_000);
    const read = indexes(answer);
    let { nextSeq } = answer;
    while (nextSeq !== undefined) {
      const page: History = (await counted((mediator) => dmHistory(mediator, { limit: 500, fromSeq: nextSeq ?? 0 })))
        .answer;
      read.push(...indexes(page));
      ({ nextSeq } = page);
    }
    expect(read).toEqual(Array.from({ length: 200 }, (_, index) => index));
  });
});
