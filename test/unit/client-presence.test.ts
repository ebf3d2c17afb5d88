/** The own presence record, on a clock of the test's own. */
import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createEvents } from "../../shared/client/events.ts";
import { resolveIdentity } from "../../shared/client/identity.ts";
import { type CardOptions, createPresence } from "../../shared/client/presence.ts";
import type { Publication, Publisher } from "../../shared/client/publisher.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { type Presence, readPresence } from "../../shared/protocol/chat/presence.ts";
import { refusal } from "../support/refusal.ts";

function harness(card: CardOptions = {}, uid = drawLifecycleUid(randomBytes)) {
  const clock = { now: 1_000_000 };
  const sent: Publication[] = [];
  const told: unknown[] = [];
  const state = { fails: false };
  const publisher: Publisher = {
    publish: (publication) => {
      sent.push(publication);
      if (state.fails) return Promise.reject(new CotalError(ErrorCode.PermissionDenied, "no"));
      return Promise.resolve({ stream: publication.stream, seq: sent.length, duplicate: false });
    },
    resend: () => undefined,
    pending: () => 0,
    settled: () => Promise.resolve(),
    close: () => undefined,
  };
  const identity = resolveIdentity(
    { credentials: { kind: "open", actor: "alice", uid }, role: "planner" },
    randomBytes,
  );
  const presence = createPresence({
    identity,
    publisher,
    card,
    events: createEvents((event) => told.push(event)),
    heartbeatMs: 3_600_000,
    now: () => clock.now,
  });
  return { clock, sent, told, state, presence, identity };
}

const last = (sent: readonly Publication[]): Presence => JSON.parse(sent.at(-1)?.payload ?? "{}") as Presence;

describe("the record", () => {
  test("W6.04: statusSince moves with status or activity alone, and no offline record has it", async () => {
    const { clock, sent, presence } = harness();
    presence.start();
    expect(presence.record().statusSince).toBe(1_000_000);
    clock.now += 10;
    presence.beat();
    presence.set({ status: "idle" });
    expect(presence.record().statusSince).toBe(1_000_000);
    clock.now += 10;
    presence.set({ status: "working" });
    expect(presence.record().statusSince).toBe(1_000_020);
    clock.now += 10;
    presence.set({ activity: "reading" });
    expect(presence.record().statusSince).toBe(1_000_030);
    clock.now += 10;
    presence.set({ activity: "reading" });
    expect(presence.record().statusSince).toBe(1_000_030);
    await presence.offline(100);
    expect(last(sent)).toMatchObject({ status: "offline", activity: "reading" });
    expect(last(sent).statusSince).toBeUndefined();
  });

  test("W6.05: activitySince moves with the activity alone; activeAt is relayed, never made up", () => {
    const { clock, presence } = harness();
    presence.set({ activity: "reading" });
    const since = presence.record().activitySince;
    clock.now += 10;
    presence.set({ status: "working" });
    expect(presence.record()).toMatchObject({ activitySince: since });
    clock.now += 10;
    presence.set({ activity: "writing" });
    const moved = presence.record().activitySince;
    expect(moved).toBe((since ?? 0) + 20);
    clock.now += 10;
    presence.set({ activity: "writing" });
    expect(presence.record().activitySince).toBe(moved);
    expect(presence.record().activeAt).toBeUndefined();
    presence.set({ activeAt: 42 });
    expect(presence.record().activeAt).toBe(42);
    presence.set({ activity: null });
    expect(presence.record().activity).toBeUndefined();
    expect(presence.record().activitySince).toBeUndefined();
  });

  test("W6.06: a condition is relayed as it came, from a closed set, and never inferred", () => {
    const { presence } = harness();
    expect(presence.record().condition).toBeUndefined();
    const condition = { code: "rate_limit", source: "HTTP 429", message: "slow down", since: 7 } as const;
    presence.set({ condition });
    expect(presence.record().condition).toEqual(condition);
    const wrong = { code: "bored" } as unknown as typeof condition;
    expect(refusal(() => presence.set({ condition: wrong })).code).toBe(ErrorCode.BadRequest);
    presence.set({ condition: null });
    expect(presence.record().condition).toBeUndefined();
  });

  test("W6.07: attention starts open and leaves with the offline record; channel modes start empty", async () => {
    const { sent, presence } = harness();
    presence.start();
    expect(presence.record()).toMatchObject({ attention: "open" });
    expect(presence.record().channelModes).toBeUndefined();
    presence.set({ attention: "dnd", channelModes: { general: "muted" } });
    expect(last(sent)).toMatchObject({ attention: "dnd", channelModes: { general: "muted" } });
    await presence.offline(100);
    expect(last(sent).attention).toBeUndefined();
    expect(harness().presence.record()).toMatchObject({ attention: "open" });
  });

  test("W6.08: runtime is one per process and lifecycle, the same through status and end", async () => {
    const uid = drawLifecycleUid(randomBytes);
    const first = harness({}, uid);
    const again = harness({}, uid);
    const other = harness();
    const runtime = first.presence.record().runtime;
    expect(runtime).toMatchObject({ source: "endpoint-process", startedAt: Math.round(performance.timeOrigin) });
    expect(Object.keys(runtime ?? {}).toSorted()).toEqual(["id", "source", "startedAt"]);
    expect(again.presence.record().runtime).toEqual(runtime);
    expect(other.presence.record().runtime?.id).not.toBe(runtime?.id);
    expect(other.presence.record().runtime?.startedAt).toBe(runtime?.startedAt);
    first.presence.start();
    first.presence.set({ status: "working" });
    await first.presence.offline(100);
    expect(last(first.sent).runtime).toEqual(runtime);
  });

  test("W6.10 W6.12: carries the lifecycle UID, the wire version, and the session's own key", () => {
    const { sent, presence, identity } = harness();
    presence.start();
    presence.stop();
    expect(last(sent)).toMatchObject({
      lifecycleUid: identity.uid,
      card: { id: "local.alice", name: "alice", kind: "agent", role: "planner", protocolVersion: "0.4" },
    });
    expect(sent[0]?.subject).toBe("$KV.cotal_presence_main.local.alice");
    expect(readPresence("local.alice", last(sent), 1_000_000)).toMatchObject({ ok: true, entry: { live: true } });
  });

  test("W6.02: a live session is never offline", () => {
    const { presence } = harness();
    const status = "offline" as unknown as "idle";
    expect(refusal(() => presence.set({ status })).code).toBe(ErrorCode.BadRequest);
    expect(presence.record().status).toBe("idle");
  });

  test("a refused write is told once, however many heartbeats follow", async () => {
    const { state, told, presence } = harness();
    state.fails = true;
    for (let beat = 0; beat < 3; beat += 1) presence.beat();
    await new Promise(setImmediate);
    expect(told).toMatchObject([{ type: "presence-unwritten", error: { code: ErrorCode.PermissionDenied } }]);
  });
});

describe("the card", () => {
  test("W11.04: a meta key is reserved and flat, or reverse-DNS", () => {
    expect(harness({ meta: { model: "m", "com.acme.region": 3 } }).presence.record().card.meta).toEqual({
      model: "m",
      "com.acme.region": 3,
    });
    expect(refusal(() => harness({ meta: { region: "eu" } })).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => harness({ meta: { model: 3 } })).code).toBe(ErrorCode.BadRequest);
  });

  test("a field of the wrong type is refused, and its path named", () => {
    const tags = [3] as unknown as string[];
    expect(refusal(() => harness({ tags })).message).toContain("tags");
  });
});

test("W6.09: another runtime source shows no runtime, and environment is passed on unread", () => {
  const { presence } = harness();
  presence.set({ environment: "{not json" });
  const record = presence.record();
  expect(record.environment).toBe("{not json");
  const foreign = { ...record, runtime: { ...record.runtime, source: "x" } };
  const read = readPresence("local.alice", foreign, record.ts);
  expect(read).toMatchObject({ ok: true });
  expect(read).not.toHaveProperty("entry.runtime");
});
