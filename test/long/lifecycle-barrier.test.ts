/**
 * Ends and takeovers as barriers, with the real processes: the auth service, one more responder of the callout beside
 * it, and the delivery service's oracle. Whatever connects meanwhile, and however slow a responder is, nobody of what
 * has ended is left when a barrier is through.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { type Principal, principal } from "../../shared/protocol/base/principals.ts";
import {
  ActorAnswer,
  ActorListAnswer,
  ActorRevokeAnswer,
  RetireLifecycleAnswer,
  TakeoverLifecycleAnswer,
} from "../../shared/protocol/endpoint/auth-shapes.ts";
import { type ExchangeAnswer, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import {
  type BarrierCaller,
  type DeliveryService,
  barrierCaller,
  startDeliveryService,
} from "../support/delivery-service.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";

let space: TestSpace;
let auth: AuthService;
let edge: AuthService;
let delivery: DeliveryService;
let barrier: BarrierCaller;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  delivery = startDeliveryService(space);
  auth = await startAuthService(space, { waitMs: 60_000 });
  edge = await startAuthService(space, { name: "edge", env: { COTAL_AUTH_ROLES: "edge" }, waitMs: 60_000 });
  await delivery.ready();
  barrier = await barrierCaller(space, "auth-server");
}, 120_000);
afterAll(async () => {
  await delivery.kill("SIGTERM");
  await edge.stop();
  await auth.stop();
  await space.stop();
});

const say = (command: string, args: unknown) =>
  space.call(command, args, { endpoint: EndpointName.Auth, deadlineMs: 45_000 });
const retire = async (p: Principal, lifecycleUid: string) =>
  RetireLifecycleAnswer.parse(await say("retire-lifecycle", { ...p, lifecycleUid }));
const door = (p: Principal, lifecycleUid: string) =>
  auth.post(ExchangePath.RetireLifecycle, { space: "main", ...p, lifecycleUid });

let nonces = 0;
const nonce = (): string => `n${String((nonces += 1))}`.padEnd(26, "x");

async function signedIn(actor: string): Promise<{ answer: ExchangeAnswer; p: Principal }> {
  const answer = await auth.signIn(actor);
  return { answer, p: principal(answer.owner, actor) };
}

/** Connects again and again with one bearer, several at once, until told; hands back every connection it got. */
function storm(answer: ExchangeAnswer, width: number): { readonly stop: () => Promise<readonly Connection[]> } {
  const got: Connection[] = [];
  let over = false;
  const one = async (): Promise<void> => {
    while (!over) {
      const connection = await auth.connect(answer, nonce()).catch(() => undefined);
      if (connection !== undefined) got.push(connection);
    }
  };
  const all = Array.from({ length: width }, one);
  return {
    stop: async () => {
      over = true;
      await Promise.all(all);
      return got;
    },
  };
}

/** The second responder stands still for a while, and goes on: again and again until told. */
function faltering(): { readonly stop: () => Promise<void> } {
  let over = false;
  const beat = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  const run = async (): Promise<void> => {
    while (!over) {
      stopProcess(edge.pid());
      // Near to what the broker gives a login.
      await beat(1700);
      process.kill(edge.pid(), "SIGCONT");
      await beat(150);
    }
  };
  const running = run();
  return {
    stop: async () => {
      over = true;
      await running;
    },
  };
}

/** Everyone that the storm brought in is out, and nobody comes in any more. */
async function expectNobody(p: Principal, answer: ExchangeAnswer, got: readonly Connection[]): Promise<void> {
  await Promise.all(got.map((connection) => connection.closed));
  expect(await failure(auth.connect(answer, nonce()))).toMatchObject({ code: "unauthenticated" });
  expect(await barrier.liveness(p)).toMatchObject([{ state: "gone", found: 0 }]);
}

describe("W131.10 W131.11 an end while people connect", () => {
  test("W131.11 W131.10 a storm of logins, and a responder slowed to the broker's limit: when the end is through, nobody is left", async () => {
    const { answer, p } = await signedIn("stormed");
    const slow = faltering();
    const logins = storm(answer, 6);
    await expect.poll(() => barrier.liveness(p), { timeout: 30_000 }).toMatchObject([{ state: "live" }]);
    expect(await retire(p, answer.lifecycleUid)).toEqual({ opId: `retire-${answer.lifecycleUid}` });
    await slow.stop();
    const got = await logins.stop();
    expect(got.length).toBeGreaterThan(0);
    await expectNobody(p, answer, got);
  }, 120_000);

  test("W131.14 both entries at once are one operation; the door ends nobody who is granted", async () => {
    const { answer, p } = await signedIn("twice");
    const uid = answer.lifecycleUid;
    const live = await auth.connect(answer, nonce());
    expect(await door(p, uid)).toMatchObject({ status: 409, body: { code: "failed-precondition" } });
    expect(live.isUp()).toBe(true);
    const [asked, , at] = await Promise.all([
      retire(p, uid),
      live.closed,
      // The door opens once the grant is revoked, which the other entry does first.
      eventually(
        () => door(p, uid),
        ({ status }) => status === 200,
        40_000,
      ),
    ]);
    expect(asked).toEqual({ opId: `retire-${uid}` });
    expect(at).toEqual({ status: 200, body: { opId: `retire-${uid}` } });
    expect(await retire(p, uid)).toEqual({ opId: `retire-${uid}` });
    await expectNobody(p, answer, [live]);
  }, 90_000);

  test("W131.13 W131.14 an end that could not be proved waits behind its gate, and the door completes it", async () => {
    const { answer, p } = await signedIn("unseen");
    const uid = answer.lifecycleUid;
    const live = await auth.connect(answer, nonce());
    await delivery.kill();
    // Nobody ends connections now; the auth service counts for itself, and sees one.
    const { remains } = ActorRevokeAnswer.parse(await say("actor-revoke", p));
    expect(remains).toContain("still connected: 1 connection");
    expect(live.isUp()).toBe(true);
    expect(await failure(auth.connect(answer, nonce()))).toMatchObject({ code: "unauthenticated" });
    expect(await door(p, uid)).toMatchObject({ status: 409 });
    delivery.restart();
    await delivery.ready();
    expect(await door(p, uid)).toEqual({ status: 200, body: { opId: `retire-${uid}` } });
    await expectNobody(p, answer, [live]);
    const { actor } = ActorAnswer.parse(await say("actor-grant", { ...p, allowSubscribe: [">"] }));
    expect(actor.lifecycleUid).not.toBe(uid);
  }, 120_000);
});

describe("W131.07 a takeover while people connect", () => {
  test("W131.07 W10.08 every bearer of the epoch is over, its connections too; who signs in again is the same lifecycle", async () => {
    const { answer, p } = await signedIn("rotated");
    const logins = storm(answer, 4);
    await expect.poll(() => barrier.liveness(p), { timeout: 30_000 }).toMatchObject([{ state: "live" }]);
    const asked = { ...p, lifecycleUid: answer.lifecycleUid };
    expect(TakeoverLifecycleAnswer.parse(await say("takeover-lifecycle", asked))).toEqual({ epoch: 2 });
    const got = await logins.stop();
    await expectNobody(p, answer, got);
    const again = await auth.signIn("rotated");
    expect(again.lifecycleUid).toBe(answer.lifecycleUid);
    const back = await auth.connect(again, nonce());
    expect(back.isUp()).toBe(true);
    expect(await failure(auth.connect(answer, nonce()))).toMatchObject({ code: "unauthenticated" });
    const { actors } = ActorListAnswer.parse(await say("actor-list", { owner: p.owner }));
    expect(actors.find(({ actor }) => actor === "rotated")).toMatchObject({ state: "active" });
    await back.close();
  }, 120_000);
});
