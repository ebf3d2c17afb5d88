/**
 * Takeovers and ends in a cluster of three real brokers, one of which can't be reached: who is connected there can't be
 * shown gone, so neither goes on, its gate stays shut under it whatever else is asked and whoever holds the plane, and
 * when the server is back the same operation completes (§13.1).
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Principal, principal } from "../../shared/protocol/base/principals.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { GateRow, HeadRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { eventually, including } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";
import { type UserCluster, startUserCluster } from "../support/user-cluster.ts";

let world: UserCluster;
beforeAll(async () => {
  world = await startUserCluster();
}, 240_000);
afterAll(() => world?.stop(), 60_000);

/** Of three servers two have answered; which count is short depends on how long the third has been away. */
const MISSING = /is still connected is not known: .*3 servers.* 2 answered/;
const PATIENT_MS = 180_000;

type Lifecycle = { readonly p: Principal; readonly uid: string; readonly answer: ExchangeAnswer };

async function lifecycle(actor: string): Promise<Lifecycle> {
  // A server that came back a moment ago may still be choosing leaders.
  const answer = await eventually(
    () => world.auth.signIn(actor).catch((error: Error) => error),
    (found) => !(found instanceof Error),
    PATIENT_MS,
  );
  if (answer instanceof Error) throw answer;
  return { p: principal(answer.owner, actor), uid: answer.lifecycleUid, answer };
}

const rotate = ({ p, uid }: Lifecycle) => world.say("takeover-lifecycle", { ...p, lifecycleUid: uid, epoch: 1 });
const retire = ({ p, uid }: Lifecycle) => world.say("retire-lifecycle", { ...p, lifecycleUid: uid });

/** The gate as it is stored, with its revision. A read waits for a leader that the two other servers elect. */
async function gateOf(uid: string): Promise<{ readonly gate: GateRow; readonly revision: number }> {
  const row = await eventually(
    () => world.ledger.read("auth", ledgerKey.gate(uid)).catch(() => undefined),
    (found) => found?.kind === "value",
    PATIENT_MS,
  );
  if (row?.kind !== "value") throw new Error(`no gate of ${uid}`);
  return { gate: GateRow.parse(row.value), revision: row.revision };
}

async function headOf(p: Principal): Promise<HeadRow> {
  const row = await world.ledger.read("records", ledgerKey.head(p));
  return HeadRow.parse(row.kind === "value" ? row.value : undefined);
}

/** Asked again and again, while streams find new leaders too: it is never done, and in the end says what is missing. */
async function refusedForTheMissing(ask: () => Promise<unknown>): Promise<void> {
  const refused = await eventually(
    () => failure(ask()),
    (error) => MISSING.test(error.message),
    PATIENT_MS,
  );
  expect(refused.message).toMatch(MISSING);
  expect(refused).toMatchObject({
    code: "unavailable",
    next: expect.stringContaining("bring every server") as unknown,
  });
}

/** What he has is refused, and never taken: also while streams find new leaders, when nobody is let in at all. */
async function expectRefused(answer: ExchangeAnswer): Promise<void> {
  const refused = await eventually(
    () => world.connectAt(0, answer).then(() => "let in", String),
    (said) => said === "let in" || /authorization/i.test(said),
    PATIENT_MS,
  );
  expect(refused).toMatch(/authorization/i);
}

/** Nobody of the lifecycle gets in, by what he has or anew. */
async function expectShut({ answer }: Lifecycle): Promise<void> {
  await expectRefused(answer);
  await expect(world.auth.signIn(answer.actor)).rejects.toThrow(/exchange: [45]\d\d/);
}

/** Another process holds the plane from here on. */
async function anotherPlane(): Promise<void> {
  const held = () => world.auth.log().split("this process holds the authority plane").length;
  const before = held();
  await world.auth.kill();
  await world.auth.restart();
  await eventually(held, (now) => now > before, PATIENT_MS);
}

test("a bearer that is over is refused by the servers of a cluster once round, and not for ever", async () => {
  const of = await lifecycle("refused");
  expect(await retire(of)).toEqual({ opId: `retire-${of.uid}` });
  expect(await failure(world.auth.connect(of.answer))).toMatchObject({ code: "unauthenticated" });
}, 120_000);

describe("one server of three can't be reached", () => {
  test("W131.09 W131.07 W131L.05 frozen: a takeover fails and says so, its gate stays shut, and when the server is back the same operation completes", async () => {
    const of = await lifecycle("rotated");
    const { p, uid } = of;
    const there = await world.connectAt(2, of.answer);
    const [, , far] = world.brokers;
    far.freeze();
    try {
      await refusedForTheMissing(() => rotate(of));
      const shut = await gateOf(uid);
      const op = { kind: "takeover", opId: `takeover-${uid}-1` };
      expect(shut.gate).toMatchObject({ state: "frozen", op });
      // Whoever is on that server may be there still: his epoch must not have moved.
      expect(await headOf(p)).toMatchObject({ state: "active", processEpoch: 1 });
      await expectShut(of);
      // What cotal doctor asks shows whose the gate is.
      expect(await world.say("operation-list", {})).toMatchObject({
        operations: including({ ...p, lifecycleUid: uid, ...op }),
      });
      // An end does not take it: who carries the takeover out is alive.
      expect(await failure(retire(of))).toMatchObject({ code: "conflict" });
      await anotherPlane();
      await refusedForTheMissing(() => rotate(of));
      await expectShut(of);
      expect(await gateOf(uid)).toEqual(shut);
      expect(await headOf(p)).toMatchObject({ state: "active", processEpoch: 1 });
    } finally {
      far.thaw();
    }
    const done = await eventually(
      () => rotate(of).catch((error: unknown) => error),
      (answer) => !(answer instanceof Error),
      PATIENT_MS,
    );
    expect(done).toEqual({ epoch: 2 });
    await there.closed();
    expect(await gateOf(uid)).toMatchObject({ gate: { state: "open", generation: 2 } });
    expect(await headOf(p)).toMatchObject({ processEpoch: 2, lastTakeoverOpId: `takeover-${uid}-1` });
    await expectRefused(of.answer);
    // The end that was refused before has taken the grant back all the same; now the gate is free for it.
    expect(await retire(of)).toEqual({ opId: `retire-${uid}` });
    expect(await headOf(p)).toMatchObject({ state: "retired", lifecycleUid: uid });
  }, 600_000);

  test("W131.09 W131.13 W131.11 stopped: an end fails and says so, name and gate stay its own, and when the server is back it completes under its id", async () => {
    const of = await lifecycle("retired");
    const { p, uid } = of;
    const there = await world.connectAt(2, of.answer);
    const [, , far] = world.brokers;
    process.kill(far.pid(), "SIGTERM");
    await expect.poll(() => there.isClosed()).toBe(true);
    await refusedForTheMissing(() => retire(of));
    const shut = await gateOf(uid);
    expect(shut.gate).toMatchObject({ state: "frozen", op: { kind: "retirement", opId: `retire-${uid}` } });
    expect(await headOf(p)).toMatchObject({ state: "retiring", lifecycleUid: uid });
    await expectShut(of);
    // Neither a takeover nor a new grant of the same name, nor the next plane, which takes the end up by itself.
    expect(await failure(rotate(of))).toMatchObject({ code: "failed-precondition" });
    expect(await failure(world.say("actor-grant", { ...p, allowSubscribe: [">"] }))).toMatchObject({
      code: "unavailable",
    });
    await anotherPlane();
    await refusedForTheMissing(() => retire(of));
    expect(await gateOf(uid)).toEqual(shut);
    await far.restart();
    const done = await eventually(
      () => retire(of).catch((error: unknown) => error),
      (answer) => !(answer instanceof Error),
      PATIENT_MS,
    );
    expect(done).toEqual({ opId: `retire-${uid}` });
    expect(await gateOf(uid)).toMatchObject({
      gate: { state: "retired", op: { kind: "retirement", opId: `retire-${uid}` } },
    });
    expect(await headOf(p)).toMatchObject({ state: "retired", lifecycleUid: uid });
    await expectRefused(of.answer);
    // Only now is the name free.
    await world.say("actor-grant", { ...p, allowSubscribe: [">"] });
    expect((await lifecycle("retired")).uid).not.toBe(uid);
  }, 600_000);
});
