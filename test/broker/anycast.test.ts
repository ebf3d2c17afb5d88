/**
 * Requests to a role in an authenticated space (§8.1), end to end: real broker, provisioner and delivery service,
 * sessions of the SDK as senders and holders.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { type Sessions, type TestSession, sessionsOf, take, texts, until } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let delivery: DeliveryService;
let sessions: Sessions;
let serial = 0;

beforeAll(async () => {
  space = await startSpace();
  delivery = startDeliveryService(space);
  sessions = sessionsOf(space);
  await delivery.ready();
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await delivery.kill("SIGTERM");
  await space.stop();
});

/** A role that nobody else of this file holds. */
const freshRole = () => `role${(serial += 1)}`;
const sender = () => sessions.minted({ actor: `s${(serial += 1)}` });
const holder = (role: string, limits: object = {}) => sessions.minted({ actor: `h${(serial += 1)}`, role }, { limits });

const notices = async (session: TestSession, count: number) =>
  (await take(session, count)).map((item) => (item.kind === "dm" ? item.notice : undefined));

describe("W81.06 W81.15 W81.17 from ask to answer", () => {
  test("W81.06 W81.15 W81.18 a holder takes what it shows; the sender reads it, and is told once by the daemon", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const asked = await alice.ask(role, "look?");
    expect(asked.waitsFor).toBeUndefined();
    expect(await alice.asked.status(asked)).toEqual({ state: "waiting", seq: asked.seq, role });
    expect(texts(await take(bob, 1))).toEqual(["look?"]);
    expect(await alice.asked.status(asked)).toMatchObject({
      state: "taken",
      seq: asked.seq,
      role,
      taker: { id: bob.me.id, name: bob.me.name },
    });
    expect(await notices(alice, 1)).toEqual([
      { seq: asked.seq, role, event: "taken", taker: { id: bob.me.id, name: bob.me.name } },
    ]);
    expect(await alice.asked.cancel(asked)).toMatchObject({ state: "taken", taker: { id: bob.me.id } });
  }, 30_000);

  test("W81.06 what waits unread can be seen and counted and still be cancelled; the holder never shows it", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const asked = await alice.ask(role, "never mind");
    await bob.listen();
    await until("bob holds it", () => bob.waiting().length === 1);
    expect(bob.waiting()).toMatchObject([{ kind: "ask", role, id: asked.id }]);
    expect(bob.stats().held).toBe(1);
    expect(await alice.asked.cancel(asked)).toEqual({ state: "cancelled", seq: asked.seq, role, removal: "deleted" });
    const next = await alice.ask(role, "this one");
    expect(texts(await take(bob, 1))).toEqual(["this one"]);
    expect(await alice.asked.status(asked)).toMatchObject({ state: "cancelled", removal: "deleted" });
    expect(await alice.asked.status(next)).toMatchObject({ state: "taken" });
  }, 30_000);
});
