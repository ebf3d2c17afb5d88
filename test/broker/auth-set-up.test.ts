/** What the auth service waits for and reads of a space before it serves it, on a real broker. */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decide } from "../../services/auth/edge/admission.ts";
import { clocksAgree, keepLimits } from "../../services/auth/set-up.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { connId } from "../../shared/protocol/base/principals.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { type ConnectionLimits, SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { jsonObject } from "../../shared/trust/nats-jwt.ts";
import { bearerOf, edgeRig } from "../support/edge-rig.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const { channels } = spaceNames("main").bucket;
const [stream, subject] = [bucketStream(channels), kvKey(channels, SPACE_KEY)];
let space: TestSpace;
let nc: NatsConnection;
let settings: SpaceSettings;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  nc = await space.store();
  settings = SpaceSettings.parse(await stored());
});
afterAll(() => space.stop());

async function stored(): Promise<unknown> {
  const entry = await leaderLast(nc, stream, subject);
  return entry === undefined ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

async function write(row: unknown): Promise<void> {
  const before = await leaderLast(nc, stream, subject);
  const data = new TextEncoder().encode(JSON.stringify(row));
  const writer = createWriter({ nc });
  await (before === undefined ? writer.create(stream, subject, data) : writer.cas(stream, subject, data, before.seq));
}

const place = (signal = new AbortController().signal) => ({ space: "main", signal, waiting: () => undefined });
const withLimits = (agent: ConnectionLimits): SpaceSettings => ({ ...settings, limits: { agent } });

describe("the clock", () => {
  test("is the broker's, within what a connect allows; apart in either direction it is told, with how far", async () => {
    const off = (seconds: number) => clocksAgree(nc, "main", () => Date.now() + seconds * 1000);
    for (const seconds of [0, 5, -30]) expect(await off(seconds)).toBeUndefined();
    expect((await failure(off(300))).message).toMatch(/(?:299|300|301) s ahead of the broker's/);
    expect((await failure(off(-300))).message).toMatch(/(?:299|300|301) s behind the broker's/);
  });
});

describe("limits of connections (H67)", () => {
  test("are those of the settings row, and a change holds from the next look", async () => {
    const limits = await keepLimits(nc, place());
    expect(limits.agent()).toEqual(settings.limits.agent);
    await write(withLimits({ subs: 7, payload: 1000 }));
    expect(limits.agent()).toEqual(settings.limits.agent);
    await limits.refresh();
    expect(limits.agent()).toEqual({ subs: 7, payload: 1000 });
    expect((await keepLimits(nc, place())).agent()).toEqual({ subs: 7, payload: 1000 });
  });

  test("a row that can't be read changes nothing, and is told", async () => {
    await write(withLimits({ subs: 9, payload: 900 }));
    const limits = await keepLimits(nc, place());
    for (const row of [{ ...settings, limits: {} }, "text", { ...settings, v: 2 }]) {
      await write(row);
      expect(await failure(limits.refresh())).toMatchObject({ code: "failed-precondition" });
      expect(await failure(keepLimits(nc, place()))).toMatchObject({ code: "failed-precondition" });
    }
    expect(limits.agent()).toEqual({ subs: 9, payload: 900 });
    await write(settings);
    await limits.refresh();
    expect(limits.agent()).toEqual(settings.limits.agent);
  });

  test("a space without settings is waited for, as long as anybody waits", async () => {
    await nc.request(jsApi.streamPurge(stream), JSON.stringify({ filter: subject }));
    expect(await stored()).toBeUndefined();
    const stopping = new AbortController();
    const givenUp = failure(keepLimits(nc, place(stopping.signal)));
    const waiting = keepLimits(nc, place());
    stopping.abort();
    expect(await givenUp).toMatchObject({ code: "unavailable" });
    await write(settings);
    expect((await waiting).agent()).toEqual(settings.limits.agent);
  });

  test("stand in each JWT as they are when it is made", async () => {
    const rig = edgeRig();
    const account = newKey("account");
    let agent: ConnectionLimits = { subs: 11, payload: 1100 };
    const { bearer, uid } = await bearerOf(rig, "alice");
    const admitted = async (): Promise<unknown> => {
      const verdict = await decide(
        {
          userKey: newKey("user").publicKey,
          server: { id: "N", name: "test", host: "127.0.0.1" },
          options: { auth_token: bearer, name: connId(uid, "n".repeat(26)) },
          client: { host: "127.0.0.1" },
          expires: 0,
          sealedFor: undefined,
        },
        {
          space: rig.space,
          bearer: { issuer: rig.issuer, audience: rig.audience, keys: [rig.signer] },
          front: { account: account.publicKey, signer: account },
          connection: () => agent,
          limits: rig.limits,
          authority: rig.authority,
          now: () => rig.clock.now,
          answerMs: 60_000,
        },
      );
      const jwt = verdict.kind === "allow" ? verdict.userJwt : "";
      return jsonObject(jwt.split(".")[1] ?? "")?.["nats"];
    };
    expect(await admitted()).toMatchObject({ subs: 11, payload: 1100 });
    agent = { subs: 12, payload: 1200 };
    expect(await admitted()).toMatchObject({ subs: 12, payload: 1200 });
  });
});
