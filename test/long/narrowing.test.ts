/**
 * A grant that is narrowed, with every real process of a space that people sign in to (§8, `delivery.md` 5): what its
 * answer says is true of the streams and of the broker at that moment.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ActorAnswer, ActorRevokeAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { DevToken, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { groupOf } from "../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { inGroups } from "../support/member-groups.ts";
import { type Sessions, type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 90_000 });

const GROUPS = 2;

let space: TestSpace;
let auth: AuthService;
let delivery: DeliveryService;
let sessions: Sessions;
let store: NatsConnection;
let speaker: TestSession;
let owner: string;

beforeAll(async () => {
  space = await startSpace({ auth: "user", delivery: false });
  auth = await startAuthService(space);
  store = await space.store();
  await inGroups(store, GROUPS);
  delivery = startDeliveryService(space);
  await delivery.ready();
  sessions = sessionsOf(space);
  ({ owner } = await auth.signIn("cli"));
  speaker = await member("speaker", [">"]);
}, 90_000);
afterAll(async () => {
  await sessions.closeAll();
  await delivery.kill("SIGTERM");
  await auth.stop();
  await space.stop();
});

const ask = (command: string, args: object) =>
  space.call(command, args, { endpoint: EndpointName.Auth, deadlineMs: 30_000 });
const narrowed = async (actor: string, allowSubscribe: string[]) =>
  ActorAnswer.parse(await ask("actor-narrow", { owner, actor, allowSubscribe }));

async function signedIn(actor: string): Promise<TestSession> {
  const { url, capability } = auth.face();
  const idToken = async () => DevToken.parse((await auth.post(ExchangePath.DevToken, {})).body).idToken;
  return sessions.own({
    presence: false,
    credentials: { kind: "user", space: "main", actor, exchange: { url, capability }, idToken },
  });
}

async function member(actor: string, allowSubscribe: string[]): Promise<TestSession> {
  await ask("actor-grant", { owner, actor, allowSubscribe, allowPublish: [">"] });
  return signedIn(actor);
}

const group = ({ me }: TestSession): number => groupOf(ledgerKey.acl(me.principal, me.uid), GROUPS);
const copies = async ({ me }: TestSession): Promise<string[]> => (await copiesOf(store, me)).map(({ text }) => text);
async function posted(to: TestSession, channel: string, words: string): Promise<void> {
  const { seq } = await speaker.send(channel, words);
  await until("it has its copy", async () => ((await markerOf(store, group(to)))?.sequence ?? 0) >= seq);
}

/** One member in each group, away, with a copy of each of two channels. */
async function away(lead: string): Promise<TestSession[]> {
  const found = new Map<number, TestSession>();
  for (let n = 0; found.size < GROUPS; n += 1) {
    const who = await member(`${lead}_${n}`, ["open.>", "secret.>"]);
    if (!found.has(group(who))) {
      for (const family of ["open.>", "secret.>"]) await who.join(family, { replay: false });
      found.set(group(who), who);
    }
    await who.close();
  }
  const members = [...found.values()];
  for (const who of members) {
    await posted(who, "secret.a", "s");
    await posted(who, "open.a", "o");
  }
  return members;
}

describe("W9.18 a narrowing is answered once its copies are taken back", () => {
  test("W8.10 members of both groups that are away: at the answer no copy is left that they may not read", async () => {
    for (const who of await away("gone")) {
      expect(await copies(who)).toContain("s");
      const { narrowing } = await narrowed(who.me.principal.actor, ["open.>"]);
      expect(new Set(await copies(who))).toEqual(new Set(["o"]));
      expect((await rowsOf(store, who.me)).map(({ pattern, state }) => `${pattern} ${state}`)).toEqual([
        "open.> joined",
        "secret.> left",
      ]);
      expect(narrowing).toEqual({ copies: "swept", connections: "ended" });
      await posted(who, "secret.a", "never");
      expect(await copies(who)).not.toContain("never");
    }
  });

  test("W7.06 who is connected is let in anew: nothing of the channel surfaces any more, live or stored", async () => {
    const who = await member("here", ["open.>", "secret.>"]);
    for (const family of ["open.>", "secret.>"]) await who.join(family, { replay: false });
    await posted(who, "secret.a", "while it may");
    expect(texts(await take(who, 1))).toEqual(["while it may"]);
    const { narrowing } = await narrowed("here", ["open.>"]);
    expect(narrowing).toEqual({ copies: "swept", connections: "ended" });
    await until("it is back", () => who.joined().some(({ channel }) => channel === "open.>"));
    await posted(who, "secret.a", "never");
    await posted(who, "open.a", "still");
    expect(texts(await take(who, 1))).toEqual(["still"]);
    await who.close();
  });

  test("a grant that takes nothing away says nothing; one that does is swept for; a revoked one keeps no copy", async () => {
    const [who] = await away("again");
    if (who === undefined) throw new Error("nobody");
    const { actor } = who.me.principal;
    const grant = { owner, actor, allowPublish: [">"] };
    const wider = ActorAnswer.parse(
      await ask("actor-grant", { ...grant, allowSubscribe: ["open.>", "secret.>", "more"] }),
    );
    expect(wider.narrowing).toBeUndefined();
    const less = ActorAnswer.parse(await ask("actor-grant", { ...grant, allowSubscribe: ["open.>"] }));
    expect(less.narrowing).toMatchObject({ copies: "swept" });
    expect(new Set(await copies(who))).toEqual(new Set(["o"]));
    const revoked = ActorRevokeAnswer.parse(await ask("actor-revoke", { owner, actor }));
    expect(revoked.copies).toBe("swept");
    expect(await copies(who)).toEqual([]);
  });

  test("with the writer away it says pending, and is no failure; the next writer sweeps before it writes", async () => {
    const [who] = await away("late");
    if (who === undefined) throw new Error("nobody");
    const { actor } = who.me.principal;
    await delivery.kill();
    expect((await narrowed(actor, ["open.>"])).narrowing).toEqual({ copies: "pending", connections: "pending" });
    expect(await copies(who)).toContain("s");
    delivery.restart();
    await delivery.ready();
    await posted(who, "open.a", "after");
    expect(await copies(who)).not.toContain("s");
    // The same once more waits for the proof.
    expect((await narrowed(actor, ["open.>"])).narrowing).toEqual({ copies: "swept", connections: "ended" });
  });
});
