/**
 * The callout against a real broker: signed in through the exchange, let in by the callout, and each way
 * in that is none. The authority is the real one, on a ledger in memory.
 */
import { randomBytes } from "node:crypto";
import { type AuthorizationResponse, decode } from "@nats-io/jwt";
import { createServer } from "@nats-io/nkeys";
import { type NatsConnection, connect, headers } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { type ConnectLimits, type LimitSizes, createConnectLimits } from "../../services/auth/edge/connect-limits.ts";
import {
  type CalloutEvent,
  type CalloutOptions,
  DEFAULT_ANSWER_MS,
  DEFAULT_MAX_IN_FLIGHT,
  type ServedCallout,
  serveCallout,
} from "../../services/auth/edge/callout.ts";
import { DenialReason } from "../../services/auth/edge/denials.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { connId, drawNonce } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { Face, View } from "../../shared/protocol/endpoint/views.ts";
import { type BearerClaims, signBearer, verifyBearer } from "../../shared/trust/bearer.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import { type CalloutBroker, startCalloutBroker } from "../support/callout-broker.ts";
import { type EdgeRig, type EdgeRigOptions, bearerOf, edgeRig } from "../support/edge-rig.ts";
import { startBroker } from "../support/nats-server.ts";
import { seeded } from "../support/seeded.ts";
import { heapMiB } from "../support/vitals.ts";

let broker: CalloutBroker;
const served: ServedCallout[] = [];
const clients: NatsConnection[] = [];

beforeAll(async () => {
  broker = await startCalloutBroker({ spaces: ["main", "lab"] });
});
afterAll(() => broker.end());
afterEach(async () => {
  await Promise.all(clients.splice(0).map((nc) => nc.close()));
  await Promise.all(served.splice(0).map(({ stop }) => stop()));
});

type Space = EdgeRig & {
  readonly verdicts: readonly CalloutEvent[];
  readonly served: ServedCallout;
  readonly responder: NatsConnection;
};

const unlimited = (): ConnectLimits => {
  const rate = { burst: 1e6, perMinute: 1e6 };
  return createConnectLimits({ actor: rate, owner: rate, host: rate, keys: 1000 }, () => performance.now());
};

async function serve(
  name: "main" | "lab",
  rigOptions: EdgeRigOptions = {},
  over: Partial<CalloutOptions> = {},
): Promise<Space> {
  const { by, front } = broker.space(name);
  const rig = edgeRig({ space: name, authAccount: by.account, limits: unlimited(), ...rigOptions });
  const said: CalloutEvent[] = [];
  const responder = await broker.responder(name);
  const running = await serveCallout({
    nc: responder,
    by,
    front,
    space: name,
    bearer: { issuer: rig.issuer, audience: rig.audience, keys: [rig.signer] },
    connection: () => ({ subs: 1000, payload: 262_144 }),
    limits: rig.limits,
    authority: rig.authority,
    now: () => rig.clock.now,
    answerMs: DEFAULT_ANSWER_MS,
    maxInFlight: DEFAULT_MAX_IN_FLIGHT,
    onEvent: (event) => said.push(event),
    ...over,
  });
  served.push(running);
  return { ...rig, verdicts: said, served: running, responder };
}

const nonce = (): string => drawNonce(randomBytes);
const nameOf = (uid: string, inbox = nonce()): string => connId(uid, inbox);

async function dial(space: "main" | "lab", bearer: string, name?: string): Promise<NatsConnection> {
  const { sentinel } = broker.space(space);
  const nc = await broker.client(sentinel, bearer, name === undefined ? {} : { name });
  clients.push(nc);
  return nc;
}

/** Not let in, for this reason; the ledger as it was, no evidence. */
async function expectDenied(
  space: Space,
  bearer: string,
  name: string | undefined,
  reason: DenialReason,
  at: "main" | "lab" = "main",
): Promise<string> {
  const writes = space.ledger.writes.length;
  const before = space.verdicts.length;
  await expect(dial(at, bearer, name)).rejects.toThrow(/authorization violation/i);
  const [event] = space.verdicts.slice(before);
  expect(event).toMatchObject({ kind: "denied", reason });
  expect(space.ledger.writes.length).toBe(writes);
  const line = event?.kind === "denied" ? event.line : "";
  expect(line).toMatch(/^\P{Cc}{10,512}$/u);
  // The server writes its log after it has answered.
  await expect.poll(() => broker.log(), { timeout: 10_000 }).toContain(line.slice(0, 60));
  return line;
}

function claimsOf(space: Space, bearer: string): BearerClaims {
  const verified = verifyBearer(bearer, {
    issuer: space.issuer,
    audience: space.audience,
    keys: [space.signer],
    nowSeconds: Math.floor(space.clock.now / 1000),
  });
  if (!verified.ok) throw new Error(verified.fault);
  return verified.claims;
}

const resigned = (space: Space, bearer: string, act: object): string =>
  signBearer({ ...claimsOf(space, bearer), act: { ...claimsOf(space, bearer).act, ...act } }, space.signer);

/** The same bearer as it would be an hour later. */
function expired(space: Space, bearer: string): string {
  const { iat, exp, ...claims } = claimsOf(space, bearer);
  return signBearer({ ...claims, iat: iat - 3600, exp: exp - 3600 }, space.signer);
}

describe("let in", () => {
  test("W10.03 W2.06 as the principal of the bearer, in the front account, with the lists of the ledger and its own inbox", async () => {
    const space = await serve("main", { defaults: { allowSubscribe: ["general"], allowPublish: ["general"] } });
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    const inbox = nonce();
    const nc = await dial("main", bearer, nameOf(uid, inbox));
    expect(space.verdicts).toMatchObject([{ kind: "allowed", principal: `${principal.owner}.alice` }]);
    const subjects = spaceSubjects("main");
    const heard = nc.subscribe(subjects.chatRead("general"), { max: 1 });
    nc.publish(subjects.chatGrant(principal, "general"), "hello");
    for await (const message of heard) expect(message.string()).toBe("hello");
    for (const outside of [subjects.chatRead("secret"), "_INBOX_*.>", `_INBOX_${uid}_${nonce()}.>`, ">"]) {
      const refused = nc.subscribe(outside);
      expect([outside, await refused.closed]).toMatchObject([outside, { name: "PermissionViolationError" }]);
    }
    const own = nc.subscribe(`_INBOX_${uid}_${inbox}.>`);
    await nc.flush();
    expect(own.isClosed()).toBe(false);
  });

  test("W2.01 W2.06 forging another sender is refused by the broker, not by the client's good will", async () => {
    const space = await serve("main");
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    const nc = await dial("main", bearer, nameOf(uid));
    const refused: unknown[] = [];
    void (async () => {
      for await (const status of nc.status()) if (status.type === "error") refused.push(status.error);
    })();
    const subjects = spaceSubjects("main");
    for (const forged of [
      { ...principal, actor: "bob" },
      { owner: `u_${"a".repeat(26)}`, actor: "alice" },
    ]) {
      nc.publish(subjects.chatGrant(forged, "general"), "x");
    }
    const violation = { name: "PermissionViolationError", operation: "publish" };
    await vi.waitFor(() => expect(refused).toMatchObject([violation, violation]), 10_000);
  });

  test("the evidence of the connection and its read list are there before it is in", async () => {
    const space = await serve("main");
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    const name = nameOf(uid);
    await dial("main", bearer, name);
    const [key = ""] = space.ledger.keys("auth").filter((one) => one.startsWith("natkey."));
    expect(space.ledger.row("auth", key)).toMatchObject({ ...principal, lifecycleUid: uid, connId: name, view: null });
    expect(space.ledger.row("acl", `${principal.owner}.alice.${uid}`)).toMatchObject({ allowSubscribe: ["general"] });
  });

  test("W2.04 again and again under new keys: the same principal, and evidence for each", async () => {
    const space = await serve("main");
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    await Promise.all(Array.from({ length: 10 }, () => dial("main", bearer, nameOf(uid))));
    expect(space.ledger.keys("auth").filter((one) => one.startsWith("natkey.")).length).toBe(10);
    const names = space.verdicts.map((event) => (event.kind === "allowed" ? event.principal : event.kind));
    expect(new Set(names)).toEqual(new Set([`${principal.owner}.alice`]));
  });

  test("the connection ends with its bearer", async () => {
    const space = await serve("main");
    const { bearer, uid } = await bearerOf(space, "alice");
    const claims = claimsOf(space, bearer);
    const seconds = Math.floor(Date.now() / 1000);
    const short = signBearer({ ...claims, iat: seconds, exp: seconds + 2 }, space.signer);
    const nc = await dial("main", short, nameOf(uid));
    expect(await nc.closed()).toMatchObject({ name: expect.stringMatching(/Authorization|Expired/) as string });
  });
});

describe("denied, each with its reason, and nothing written", () => {
  test("W10.07 W10.32 a bearer that is none, or none of this space, or not now", async () => {
    const space = await serve("main");
    const { bearer, uid } = await bearerOf(space, "alice");
    const name = nameOf(uid);
    const [head = "", body = ""] = bearer.split(".");
    await expectDenied(space, "x", name, DenialReason.BadBearer);
    await expectDenied(space, `${head}.${body}.AAAA`, name, DenialReason.BadBearer);
    const foreign = { ...claimsOf(space, bearer), aud: "cotal:lab" };
    await expectDenied(space, signBearer(foreign, space.signer), name, DenialReason.ForeignBearer);
    await expectDenied(space, expired(space, bearer), name, DenialReason.ExpiredBearer);
    await dial("main", bearer, name);
  });

  test("W2.06 W9.15 a connection by another name than its bearer's lifecycle and a nonce", async () => {
    const space = await serve("main");
    const { bearer, uid } = await bearerOf(space, "alice");
    const other = await bearerOf(space, "bob");
    const names = [
      undefined,
      uid,
      `${uid}_`,
      `${uid}_*`,
      `${uid}_${"a".repeat(21)}`,
      `${uid}_${"a".repeat(65)}`,
      `${uid}_${"a".repeat(20)}.>`,
      `${uid}_${"a".repeat(26)}_b`,
      `*_${"a".repeat(26)}`,
      nameOf(other.uid),
      `${nameOf(uid)}\n`,
    ];
    for (const name of names) await expectDenied(space, bearer, name, DenialReason.ConnectionName);
  });

  test("W10.09 a view whose scope the actor is not granted", async () => {
    const space = await serve("main");
    const { bearer, uid } = await bearerOf(space, "alice");
    for (const view of [View.Admin, View.Purger, View.ChannelWriter] as const) {
      await expectDenied(space, resigned(space, bearer, { view }), nameOf(uid), DenialReason.Refused);
    }
  });

  test("W10.07 W10.08 a revoked actor, an absent one, another lifecycle, another root", async () => {
    const space = await serve("main");
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    const otherUid = "z".repeat(26);
    const cases = [
      [{ actor: "nobody" }, uid],
      [{ credentialId: `r_${"z".repeat(26)}` }, uid],
      [{ lifecycleUid: otherUid }, otherUid],
    ] as const;
    for (const [act, of] of cases) {
      await expectDenied(space, resigned(space, bearer, act), nameOf(of), DenialReason.Refused);
    }
    const live = await dial("main", bearer, nameOf(uid));
    await space.authority.revoke(principal);
    expect(await expectDenied(space, bearer, nameOf(uid), DenialReason.Refused)).toMatch(/revoked/);
    // Deny-new: the one that is in stays until a barrier ends it.
    await live.flush();
  });

  test("W10.07 a ledger that can't be read, or fails", async () => {
    let fails: () => Promise<never> = () => Promise.reject(new CotalError("unavailable", "the broker is away"));
    let isBroken = false;
    const space = await serve("main", {
      around: (store) => ({ ...store, read: (...at) => (isBroken ? fails() : store.read(...at)) }),
    });
    const { bearer, uid } = await bearerOf(space, "alice");
    isBroken = true;
    await expectDenied(space, bearer, nameOf(uid), DenialReason.Unavailable);
    fails = () => Promise.reject(new TypeError(`boom ${bearer}`));
    expect(await expectDenied(space, bearer, nameOf(uid), DenialReason.Internal)).not.toMatch(/boom/);
  });

  test("W10.03 another space's bearer, also with this space's key and names", async () => {
    const [main, lab] = [await serve("main"), await serve("lab")];
    const { bearer, uid } = await bearerOf(lab, "alice");
    await expectDenied(main, bearer, nameOf(uid), DenialReason.ForeignBearer);
    await dial("lab", bearer, nameOf(uid));
  });

  test("an oversized grant, before any row of an issuance", async () => {
    const many = Array.from({ length: 300 }, (_, at) => `team.channel-${at}.with-a-rather-long-name-indeed`);
    const space = await serve("main");
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    const found = await space.authority.readActor(principal);
    space.ledger.put("auth", `actor.${principal.owner}.alice`, { ...found?.value, allowSubscribe: many });
    await expectDenied(space, bearer, nameOf(uid), DenialReason.TooLarge);
  });

  test("a user key that has evidence already", async () => {
    const space = await serve("main", {
      around: (store) => ({
        ...store,
        create: (bucket, key, value) =>
          key.startsWith("natkey.")
            ? Promise.reject(new CotalError("conflict", `${key} is there`))
            : store.create(bucket, key, value),
      }),
    });
    const { bearer, uid } = await bearerOf(space, "alice");
    await expectDenied(space, bearer, nameOf(uid), DenialReason.Replayed);
  });

  test("what is revoked while the answer is made: signed, asked again, not released", async () => {
    const rigged = edgeRigHolder();
    const space = await serve("main", {}, rigged.over);
    rigged.space = space;
    const { bearer, principal, uid } = await bearerOf(space, "alice");
    rigged.between = async () => {
      await space.authority.revoke(principal);
    };
    await expect(dial("main", bearer, nameOf(uid))).rejects.toThrow(/authorization violation/i);
    expect(space.verdicts).toMatchObject([{ kind: "denied", reason: DenialReason.Moved }]);
  });

  /** An authority with something between the last write and the last look. */
  function edgeRigHolder() {
    const holder: { space?: Space; between: () => Promise<void>; over: Partial<CalloutOptions> } = {
      between: () => Promise.resolve(),
      over: {},
    };
    const of = () => {
      if (holder.space === undefined) throw new Error("no space yet");
      return holder.space.authority;
    };
    holder.over = {
      authority: {
        check: (act) => of().check(act),
        recordConnect: async (...args) => {
          await of().recordConnect(...args);
          await holder.between();
        },
        recheck: (stamp) => of().recheck(stamp),
      },
    };
    return holder;
  }

  test("a ledger that answers after the broker has given up writes nothing", async () => {
    const space = await serve("main", {}, { answerMs: 0 });
    const { bearer, uid } = await bearerOf(space, "alice");
    await expectDenied(space, bearer, nameOf(uid), DenialReason.Late);
  });

  test("more connects at once than allowed", async () => {
    const space = await serve("main", {}, { maxInFlight: 0 });
    const { bearer, uid } = await bearerOf(space, "alice");
    await expectDenied(space, bearer, nameOf(uid), DenialReason.Busy);
  });
});

describe("connect limits", () => {
  const rate = (burst: number) => ({ burst, perMinute: 6 });
  const small = (over: Partial<LimitSizes>) =>
    createConnectLimits({ actor: rate(100), owner: rate(100), host: rate(100), keys: 100, ...over }, () => 0);

  test("W10.21 W10.22 an actor over its limit: the line of §10, before any look at the ledger, and 429 at the exchange", async () => {
    let reads = 0;
    const space = await serve("main", {
      limits: small({ actor: rate(2) }),
      around: (store) => ({
        ...store,
        read: (...at) => {
          reads += 1;
          return store.read(...at);
        },
      }),
    });
    const { bearer, uid } = await bearerOf(space, "alice");
    await dial("main", bearer, nameOf(uid));
    await dial("main", bearer, nameOf(uid));
    const before = reads;
    const line = await expectDenied(space, bearer, nameOf(uid), DenialReason.RateLimited);
    expect(line).toMatch(/^RATE_LIMITED retry-after 10s/);
    expect(reads).toBe(before);
    const answer = await space.exchange(
      { space: "main", idToken: "subject:person", actor: "alice" },
      { face: Face.Loopback, address: "127.0.0.1" },
    );
    expect(answer).toMatchObject({ status: 429, body: { code: "RATE_LIMITED", limit: "actor" } });
    const bob = await bearerOf(space, "bob");
    await dial("main", bob.bearer, nameOf(bob.uid));
  });

  test("W10.21 an expired bearer is charged to its principal, junk to the address it came from", async () => {
    const space = await serve("main", { limits: small({ actor: rate(2), host: rate(1) }) });
    const { bearer, uid } = await bearerOf(space, "alice");
    const old = expired(space, bearer);
    await expectDenied(space, old, nameOf(uid), DenialReason.ExpiredBearer);
    await expectDenied(space, old, nameOf(uid), DenialReason.ExpiredBearer);
    await expectDenied(space, old, nameOf(uid), DenialReason.RateLimited);
    await expectDenied(space, "junk", nameOf(uid), DenialReason.BadBearer);
    expect(await expectDenied(space, "junk", nameOf(uid), DenialReason.RateLimited)).toMatch(/of this address/);
    const bob = await bearerOf(space, "bob");
    await dial("main", bob.bearer, nameOf(bob.uid));
  });

  test("W10.21 a flood in one space takes nothing from another", async () => {
    const main = await serve("main", { limits: small({ actor: rate(1), owner: rate(1), host: rate(1) }) });
    const lab = await serve("lab", { limits: small({ actor: rate(1), owner: rate(1), host: rate(1) }) });
    await expectDenied(main, "junk", undefined, DenialReason.BadBearer);
    for (let n = 0; n < 5; n += 1) await expectDenied(main, "junk", undefined, DenialReason.RateLimited);
    const { bearer, uid } = await bearerOf(lab, "alice");
    await dial("lab", bearer, nameOf(uid));
  });
});

describe("several responders, and the end of one", () => {
  test("two share the work; each request is answered once", async () => {
    const one = await serve("main");
    const second: CalloutEvent[] = [];
    const { by, front } = broker.space("main");
    const other = await serveCallout({
      nc: await broker.responder("main", 1),
      by,
      front,
      space: "main",
      bearer: { issuer: one.issuer, audience: one.audience, keys: [one.signer] },
      connection: () => ({ subs: 1000, payload: 262_144 }),
      limits: one.limits,
      authority: one.authority,
      now: () => one.clock.now,
      answerMs: DEFAULT_ANSWER_MS,
      maxInFlight: DEFAULT_MAX_IN_FLIGHT,
      onEvent: (event) => second.push(event),
    });
    served.push(other);
    const { bearer, uid } = await bearerOf(one, "alice");
    await Promise.all(Array.from({ length: 40 }, () => dial("main", bearer, nameOf(uid))));
    expect(one.verdicts.length + second.length).toBe(40);
    expect(Math.min(one.verdicts.length, second.length)).toBeGreaterThan(0);
    await other.stop();
    expect(await other.ended).toBeUndefined();
    await dial("main", bearer, nameOf(uid));
  });

  test("one that is stopped answers what it has begun", async () => {
    let release: () => void = () => undefined;
    const begun = new Promise<void>((resolve) => (release = resolve));
    let go: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (go = resolve));
    let isSlow = false;
    const space = await serve("main", {
      around: (store) => ({
        ...store,
        read: async (...at) => {
          if (isSlow) {
            release();
            await gate;
          }
          return store.read(...at);
        },
      }),
    });
    const { bearer, uid } = await bearerOf(space, "alice");
    isSlow = true;
    const dialled = dial("main", bearer, nameOf(uid));
    await begun;
    const stopped = space.served.stop();
    go();
    await Promise.all([dialled, stopped]);
    expect(space.verdicts).toMatchObject([{ kind: "allowed" }]);
  });

  test("a user that the account does not name gets no subscription, and it is told so", async () => {
    const { by, front } = broker.space("main");
    const rig = edgeRig();
    const nc = await broker.responder("main", 0, { sub: { deny: [">"] } });
    const refused = serveCallout({
      nc,
      by,
      front,
      space: "main",
      bearer: { issuer: rig.issuer, audience: rig.audience, keys: [rig.signer] },
      connection: () => ({ subs: 1, payload: 1 }),
      limits: rig.limits,
      authority: rig.authority,
      now: Date.now,
      answerMs: 1,
      maxInFlight: 1,
      onEvent: () => undefined,
    });
    await expect(refused).rejects.toMatchObject({ code: "permission-denied" });
  });
});

describe("junk on the callout's subject", () => {
  /** A broker that lets anybody ask what only a server may ask elsewhere, and a server that is none. */
  test("two thousand of it: no answer, no crash, no write, no memory, and the next request is answered", async () => {
    const open = await startBroker();
    onTestFinished(() => open.stop());
    const [responder, asker] = await Promise.all([connect({ servers: open.url }), connect({ servers: open.url })]);
    clients.push(responder, asker);
    const { by } = broker.space("main");
    const space = await serve("main", {}, { nc: responder });
    const server = keyFromSeed(Buffer.from(createServer().getSeed()).toString());
    const curve = newCurveKey();
    const request = (auth_token: string, name: string): Uint8Array => {
      const seconds = Math.floor(Date.now() / 1000);
      const nats = {
        type: "authorization_request",
        server_id: { id: server.publicKey, name: "n", host: "h", xkey: curve.publicKey },
        user_nkey: newKey("user").publicKey,
        client_info: { host: "10.0.0.1" },
        connect_opts: { auth_token, name },
      };
      const claims = { sub: by.account, aud: "nats-authorization-request", iat: seconds, exp: seconds + 2, nats };
      return Buffer.from(signedJwt(claims, server));
    };
    const { int, pick } = seeded(3);
    const noise = (): Uint8Array => Uint8Array.from({ length: int(0, 400) }, () => int(0, 255));
    const header = headers();
    header.set(Header.ServerXkey, curve.publicKey);
    const sealed = (bytes: Uint8Array): Uint8Array => curve.seal(by.curves[0]?.publicKey ?? "", bytes);
    const before = space.ledger.writes.length;
    const heap = heapMiB();
    for (let n = 0; n < 2000; n += 1) {
      const bytes = pick([noise, () => sealed(noise()), () => request("x", "y"), () => new Uint8Array()])();
      asker.publish(sys.userAuth, bytes, pick([{}, { headers: header }]));
    }
    await asker.flush();
    await vi.waitFor(() => expect(space.verdicts.length).toBe(2000), 10_000);
    expect(heapMiB() - heap).toBeLessThan(20);
    expect(new Set(space.verdicts.map(({ kind }) => kind))).toEqual(new Set(["unreadable"]));
    expect(space.ledger.writes.length).toBe(before);

    const { bearer, uid } = await bearerOf(space, "alice");
    const answers: [string, string][] = [
      [bearer, nameOf(uid)],
      [bearer, "other"],
    ];
    const read = await Promise.all(
      answers.map(async ([token, name]) => {
        const answer = await asker.request(sys.userAuth, sealed(request(token, name)), {
          timeout: 5000,
          headers: header,
        });
        const opened = curve.open(by.curves[0]?.publicKey ?? "", answer.data);
        return decode<AuthorizationResponse>(Buffer.from(opened ?? []).toString()).nats;
      }),
    );
    expect(read[0]?.jwt).toMatch(/^eyJ/);
    expect(read[0]?.error).toBeUndefined();
    expect(read[1]?.error).toMatch(/^bad-request: the connection is not named/);
    expect(read[1]?.jwt).toBeUndefined();
  });
});

test("nothing that was said holds a bearer, a JWT or a seed; the broker's log neither", async () => {
  const space = await serve("main");
  const { bearer, uid } = await bearerOf(space, "alice");
  const nc = await dial("main", bearer, nameOf(uid));
  await nc.flush();
  await expectDenied(space, `${bearer}x`, nameOf(uid), DenialReason.BadBearer);
  await expectDenied(space, bearer, "other", DenialReason.ConnectionName);
  const said = JSON.stringify([space.events, space.verdicts]) + broker.log();
  for (const part of bearer.split(".").slice(1)) expect(said).not.toContain(part);
  expect(said).not.toMatch(/eyJ[\w-]+\.eyJ/);
  expect(said).not.toMatch(new RegExp(`${newKey("user").seedText().slice(0, 2)}[A-Z2-7]{56}`));
});
