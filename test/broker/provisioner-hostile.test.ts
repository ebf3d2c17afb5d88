/**
 * What a member with a lawful credential can write or ask to make a mediated read costly, or to end
 * it for everybody else.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NatsConnection } from "@nats-io/transport-node";
import { readAcl } from "../../services/provisioner/acl.ts";
import { provisionerHandlers } from "../../services/provisioner/commands.ts";
import type { SpaceContext } from "../../services/provisioner/context.ts";
import { dmHistory, history } from "../../services/provisioner/history.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { type Reads, createReads } from "../../shared/client/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { HistoryAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { z } from "zod";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { unpaced } from "../support/unpaced.ts";

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

/** A handler itself, over a connection of its own whose traffic is counted. */
async function counted<T>(
  run: (context: SpaceContext) => Promise<T>,
): Promise<{ readonly answer: T; readonly bytes: number; readonly requests: number }> {
  const store = await space.store();
  const context = {
    space: "main",
    names,
    subjects,
    store,
    writer: createWriter({ nc: store }),
    acl: () => Promise.resolve(readAcl([">"])),
    settings: ((await space.call("space", {})) as { settings: SpaceContext["settings"] }).settings,
    authority: undefined,
    serving: undefined,
    registrations: unpaced,
    purger: undefined,
    daemon: undefined,
    replicas: 1,
    now: Date.now,
    random: () => new Uint8Array(),
  } satisfies SpaceContext;
  const before = store.stats();
  const answer = await run(context);
  const after = store.stats();
  return { answer, bytes: after.inBytes - before.inBytes, requests: after.outMsgs - before.outMsgs };
}

describe("presence", () => {
  test("a record that nests past every stack costs its writer his place, and nobody else anything", async () => {
    const pid = space.provisioner.pid();
    const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
    await nc.request(kvKey(names.bucket.presence, dotForm(mallory.view.principal)), deep);
    const { records } = (await space.call("roster", {}, { as: mallory })) as { records: unknown[] };
    expect(records).toContainEqual({ key: dotForm(mallory.view.principal), value: null });
    await space.call("space", {});
    expect(space.provisioner.pid()).toBe(pid);
    expect(space.provisioner.log()).not.toContain("not caught");
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
    counted((context) => history(context, { principal: mallory.view.principal, uid: mallory.view.uid }, args));

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
    const { answer, bytes } = await counted((context) => dmHistory(context, { limit: 500 }));
    expect(answer.nextSeq).toBeGreaterThan(1);
    expect(bytes).toBeLessThan(1_000_000);
    const read = indexes(answer);
    let { nextSeq } = answer;
    while (nextSeq !== undefined) {
      const page: History = (await counted((context) => dmHistory(context, { limit: 500, fromSeq: nextSeq ?? 0 })))
        .answer;
      read.push(...indexes(page));
      ({ nextSeq } = page);
    }
    expect(read).toEqual(Array.from({ length: 200 }, (_, index) => index));
  });
});

describe("a check", () => {
  test("asked for by many at once is made once, and each of them is answered", async () => {
    for (let index = 0; index < 5; index += 1) await space.mint({ actor: `checked_${index}` });
    const ask = async (handlers: ReturnType<typeof provisionerHandlers>): Promise<unknown> =>
      handlers["check"]?.({} as never, {} as never);
    const alone = await counted((context) => ask(provisionerHandlers(context, "x")));
    const many = await counted((context) => {
      const handlers = provisionerHandlers(context, "x");
      return Promise.all(Array.from({ length: 16 }, () => ask(handlers)));
    });
    expect(many.answer).toHaveLength(16);
    expect(many.answer[15]).toMatchObject({ findings: [{ check: "member group" }] });
    expect(many.requests).toBeLessThan(alone.requests * 2);
    // The next one looks anew.
    const later = await counted(async (context) => {
      const handlers = provisionerHandlers(context, "x");
      await ask(handlers);
      return ask(handlers);
    });
    expect(later.requests).toBeGreaterThan(alone.requests * 1.5);
  });
});
