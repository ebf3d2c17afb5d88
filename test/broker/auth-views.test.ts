/**
 * Views in a whole space (§9, §10): each is asked for at the exchange, let in by the callout, and does what its
 * rows say, and nothing else.
 */
import { createHash, randomBytes } from "node:crypto";
import { type NatsConnection, NoRespondersError, RequestError } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { ensureStreams, streamState } from "../../shared/broker/ensure.ts";
import { allRows } from "../../shared/broker/reads.ts";
import { transferStream } from "../../shared/broker/resources.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { askExchange } from "../../shared/client/exchange.ts";
import { type AgentCredentials, type Identity, type UserCredentials, dialedAs } from "../../shared/client/identity.ts";
import { type DmReaderOptions, type Session, connect, openDmReader } from "../../shared/client/index.ts";
import { openIdentity } from "../../shared/client/user-identity.ts";
import { jsApi, kvKey, objectChunks, objectMeta } from "../../shared/protocol/base/broker-subjects.ts";
import {
  dlvDurable,
  dmDurable,
  objectStream,
  spaceNames,
  transferBucket,
  transferObject,
} from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { type AskedView, ExchangeAnswer, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { PurgeAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { HistoryAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { daemonCredential, freshHolder, frontRoot } from "../support/holders.ts";
import { type Probe, createProber, tap } from "../support/probe.ts";
import { api, put } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, servedBy, startSpace } from "../support/space.ts";
import { type TokenIssuer, startTokenIssuer } from "../support/token-issuer.ts";
import { until } from "../support/until.ts";

const MANAGER = "m".repeat(26);
const subjects = spaceSubjects("main");
const names = spaceNames("main");

let issuer: TokenIssuer;
let space: TestSpace;
let auth: AuthService;
let store: NatsConnection;
let owner: string;
const closers: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  issuer = await startTokenIssuer();
  space = await startSpace({ auth: "user" });
  auth = await startAuthService(space, {
    env: {
      COTAL_AUTH_DEV_ISSUER: "false",
      COTAL_AUTH_POLICY: "granted",
      COTAL_IDP_ISSUER: issuer.issuer,
      COTAL_IDP_JWKS: issuer.jwks,
      COTAL_IDP_AUDIENCE: "cotal",
      COTAL_IDP_DM_READER_AUDIENCE: "cotal-dm",
    },
  });
  store = await space.store();
  owner = await grant("cli", { capabilities: ["admin", "channels", "purge", "deploy", "spawn"] });
  await grant("peer", {});
}, 60_000);
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});
afterAll(async () => {
  await auth.stop();
  await space.stop();
  await issuer.stop();
});

/** The operator's word: who may sign in as this actor. Hands back the owner token. */
async function grant(actor: string, over: object, subject = "person"): Promise<string> {
  const lists = { allowSubscribe: [">"], allowPublish: [">"], capabilities: [], ...over };
  const args = { owner: { issuer: issuer.issuer, subject }, actor, ...lists };
  const { actor: row } = (await space.call("actor-grant", args, { endpoint: EndpointName.Auth })) as {
    actor: { owner: string };
  };
  return row.owner;
}

const idToken = (): Promise<string> => issuer.sign({ aud: "cotal", sub: "person" });
const signedIn = (actor: string, asks?: AskedView): UserCredentials => ({
  kind: "user",
  exchange: () => auth.face(),
  idToken,
  actor,
  space: "main",
  ...(asks === undefined ? {} : { asks }),
});

type Viewed = {
  readonly nc: NatsConnection;
  readonly me: Identity;
  readonly call: (command: string, args: object) => Promise<unknown>;
};

/** Through the exchange and the callout, as a client comes in. */
async function asView(credentials: UserCredentials | AgentCredentials): Promise<Viewed> {
  const reconnect = { kind: "bounded", attempts: 1 } as const;
  const me = await openIdentity({ credentials }, randomBytes, { reconnect });
  const connection = await openConnection({ servers: [space.url], reconnect, ...dialedAs(me) });
  closers.push(() => connection.close());
  const { nc } = connection;
  const call = createCaller({
    nc,
    space: "main",
    caller: { principal: me.principal, uid: me.uid },
    name: "test",
    inboxPrefix: me.inboxPrefix,
    denials: watchDenials(nc),
    random: randomBytes,
  });
  return { nc, me, call: async (command, args) => (await call(servedBy(command), command, args)).data };
}

async function peer(actor = "peer"): Promise<Session> {
  const session = await connect({ servers: [space.url], credentials: signedIn(actor), presence: false });
  closers.push(() => session.close());
  return session;
}

/** Refused by the broker, every one: what an agent or another view would hold. */
async function expectNothingMore({ nc, me }: Viewed, but: readonly string[] = []): Promise<void> {
  const id = dotForm(me.principal);
  const call = (command: string): string =>
    `cotal.main.ep.one.${servedBy(command)}.${command}.${id}.${me.uid}.${"n".repeat(26)}`;
  const pubs = [
    subjects.chatGrant(me.principal, "general"),
    `cotal.main.inst.${owner}.peer.${id}`,
    kvKey(names.bucket.presence, id),
    ...["space", "history", "dm-history", "mint", "channel-set", "channel-purge", "history-purge", "limits-set"].map(
      call,
    ),
    jsApi.info,
    jsApi.streamInfo(names.chat),
    jsApi.streamPurge(names.chat),
    jsApi.next(names.dm, dmDurable(me.principal, me.uid)),
    jsApi.next(names.dlv, dlvDurable(me.principal, me.uid)),
  ].filter((subject) => !but.some((one) => subject.includes(`.${one}.`) || subject === one));
  const subs = ["cotal.main.chat.>", "cotal.main.inst.>", "$KV.>", "_INBOX_*.>", ">"].filter(
    (subject) => !but.includes(subject),
  );
  const probes: Probe[] = [
    ...pubs.map((subject): Probe => ({ op: "pub", subject })),
    ...subs.map((subject): Probe => ({ op: "sub", subject })),
  ];
  const prober = createProber(nc);
  const refused = await prober.refused(probes);
  expect(probes.filter((probe) => !refused.includes(probe))).toEqual([]);
}

/** A manager as the ledger has it when it is ready: written by the test, as no daemon does yet. */
async function registerManager(instanceId: string, epoch: number, registeredOwner: string): Promise<void> {
  const row = (bucket: "auth" | "records", key: string, value: object) =>
    put(store, kvKey(names.bucket[bucket], key), JSON.stringify(value));
  const spec = await row("records", endpointKey.spec("manager", instanceId), {
    endpoint: "manager",
    owner: registeredOwner,
  });
  await row("records", endpointKey.status("manager", instanceId), { epoch, state: "ready" });
  await row("auth", endpointKey.gate("manager", instanceId), {
    state: "open",
    generation: 1,
    processEpoch: epoch,
    registrationRevision: spec["seq"],
    nameAuthorityRevision: 1,
    principal: `${registeredOwner}.manager`,
  });
}

describe("admin", () => {
  test("W9.08 W10.09 hears direct messages and anycast live, reads them back, and says nothing", async () => {
    const admin = await asView(signedIn("cli", { view: "admin" }));
    const heard = await tap(admin.nc, "cotal.main.inst.>");
    const asked = await tap(admin.nc, "cotal.main.svc.>");
    const posted = await tap(admin.nc, "cotal.main.chat.>");
    const one = await peer();
    const text = `secret ${randomBytes(4).toString("hex")}`;
    await one.dm(`${owner}.cli`, text);
    await one.ask("reviewer", text);
    await one.send("general", text);
    await until("all three came", () => [heard, asked, posted].every(({ messages }) => messages.length === 1));
    expect(heard.messages[0]?.string()).toContain(text);
    const page = HistoryAnswer.parse(await admin.call("dm-history", {}));
    expect(page.messages.filter(({ data }) => data.includes(text))).toHaveLength(1);
    for (const stop of [heard, asked, posted]) stop.stop();
    await expectNothingMore(admin, ["space", "history", "dm-history", "cotal.main.chat.>", "cotal.main.inst.>"]);
  });

  test("W10.09 its scope withdrawn: the bearer that it has is denied, the exchange gives no other, and the person is still one", async () => {
    await grant("boss", { capabilities: ["admin"] });
    const { url, capability } = auth.face();
    const at = { url, capability };
    const bearer = await askExchange(at, { space: "main", actor: "boss", idToken: await idToken(), view: "admin" });
    const stands = await auth.connect(bearer, "a".repeat(26));
    await space.call("actor-narrow", { owner, actor: "boss", capabilities: [] }, { endpoint: EndpointName.Auth });
    const denied = await failure(auth.connect(bearer, "b".repeat(26)));
    expect(denied.code).toBe("unauthenticated");
    expect(await failure(asView(signedIn("boss", { view: "admin" })))).toMatchObject({
      code: "permission-denied",
      message: expect.stringContaining("needs the scope admin") as string,
    });
    // What stood is ended with the narrowing, and its bearer brings it back no more; what comes now is an agent.
    await expect.poll(() => stands.isUp(), { timeout: 20_000 }).toBe(false);
    const agent = await asView(signedIn("boss"));
    const prober = createProber(agent.nc);
    expect(await prober.isRefused({ op: "sub", subject: "cotal.main.inst.>" })).toBe(true);
  });
});

describe("views of the provisioner's commands", () => {
  test("W10.10 channel-writer sets a channel", async () => {
    const writer = await asView(signedIn("cli", { view: "channel-writer" }));
    await writer.call("channel-set", { channel: "general", change: { description: "by a writer" } });
    const { channels } = (await writer.call("channels", {})) as { channels: { channel: string; config: object }[] };
    expect(channels.find(({ channel }) => channel === "general")?.config).toMatchObject({ description: "by a writer" });
    await expectNothingMore(writer, ["channel-set"]);
  });

  test("W10.10 deployer compares a manifest with the space and applies it", async () => {
    const deployer = await asView(signedIn("cli", { view: "deployer" }));
    expect(await deployer.call("space", {})).toMatchObject({ settings: { auth: "user" } });
    expect(await deployer.call("roster", {})).toHaveProperty("records");
    await deployer.call("channel-set", { channel: "deployed", change: { description: "by a deployer" } });
    expect(await deployer.call("check", {})).toHaveProperty("findings");
    await expectNothingMore(deployer, ["space", "channel-set"]);
  });

  test("channel-purger removes the history of one channel, also below nothing else; purger removes all of it", async () => {
    const one = await peer();
    for (const channel of ["old", "old.deeper", "kept"]) {
      await one.send(channel, `first in ${channel}`);
      await one.send(channel, `second in ${channel}`);
    }
    const dm = await one.dm(`${owner}.cli`, "stays");
    const purger = await asView(signedIn("cli", { view: "channel-purger" }));
    expect(PurgeAnswer.parse(await purger.call("channel-purge", { channel: "old" }))).toEqual({ removed: 2 });
    const entered = await rootsEntered();
    expect(PurgeAnswer.parse(await purger.call("channel-purge", { channel: "old" }))).toEqual({ removed: 0 });
    // However often it is asked, what removes it is one credential with one row (§13.1).
    expect(await rootsEntered()).toEqual(entered);
    const left = async (channel: string): Promise<number> => (await one.history(channel)).length;
    expect([await left("old"), await left("old.deeper"), await left("kept")]).toEqual([0, 2, 2]);
    expect(await failure(purger.call("channel-purge", { channel: "*" }))).toMatchObject({ code: "bad-request" });
    expect(await failure(purger.call("channel-purge", { channel: ">" }))).toMatchObject({ code: "bad-request" });
    expect(await failure(purger.call("channel-purge", {}))).toMatchObject({ code: "bad-request" });
    expect([await left("old.deeper"), await left("kept")]).toEqual([2, 2]);
    await expectNothingMore(purger, ["channel-purge"]);

    const whole = await asView(signedIn("cli", { view: "purger" }));
    const { messages } = await streamState(store, names.chat);
    expect(PurgeAnswer.parse(await whole.call("history-purge", {}))).toEqual({ removed: messages });
    expect((await streamState(store, names.chat)).messages).toBe(0);
    expect(messages).toBeGreaterThanOrEqual(4);
    // Mail is no channel's history.
    expect((await streamState(store, names.dm)).lastSeq).toBeGreaterThanOrEqual(dm.seq);
    expect((await streamState(store, names.dm)).messages).toBeGreaterThan(0);
    await one.send("kept", "goes on");
    expect(await left("kept")).toBe(1);
    await expectNothingMore(whole, ["channel-purge", "history-purge"]);
  });
});

/** Every credential that has a row, of whomever. */
async function rootsEntered(): Promise<string[]> {
  const keys: string[] = [];
  const { auth: bucket } = names.bucket;
  for await (const { key } of allRows(store, bucket, { filter: "cred.>", limit: 100, via: "leader" })) keys.push(key);
  return keys.toSorted();
}

describe("views of a manager", () => {
  beforeAll(() => registerManager(MANAGER, 4, owner));

  test("W9.12 W10.11 manager-caller reaches the one instance, on its own rail, and nobody's class", async () => {
    const root = await frontRoot(space, "main");
    const caller = await asView(signedIn("cli", { view: "manager-caller" }));
    const id = dotForm(caller.me.principal);
    const asked = (instance: string, command: string): string =>
      `cotal.main.ep.inst.manager.${instance}.${command}.${id}.${caller.me.uid}.${"n".repeat(26)}`;
    const served = await tap(root, "cotal.main.ep.inst.manager.>");
    for (const command of ["describe", "spawn", "ps"]) caller.nc.publish(asked(MANAGER, command));
    await until("it was asked", () => served.messages.length === 3);
    const reply = `cotal.main.ep.reply.manager.${MANAGER}.4.${id}.${caller.me.uid}.${"n".repeat(26)}`;
    const heard = await tap(caller.nc, `cotal.main.ep.reply.*.*.*.${id}.${caller.me.uid}.*`);
    root.publish(reply, "answer");
    await until("it was answered", () => heard.messages.length === 1);
    const wrong: Probe[] = [asked(MANAGER, "slots"), asked("o".repeat(26), "describe"), asked("*", "describe")].map(
      (subject) => ({ op: "pub", subject }),
    );
    expect(await createProber(caller.nc).refused(wrong)).toEqual(wrong);
    served.stop();
    heard.stop();
    await expectNothingMore(caller);
  });

  test("W10.02 what the connection itself asks is answered in its own inbox: it has asked nowhere else", async () => {
    const { nc, me } = await asView(signedIn("cli", { view: "manager-caller" }));
    const denied: unknown[] = [];
    void (async () => {
      for await (const status of nc.status()) if (status.type === "error") denied.push(status.error);
    })();
    const asked = `cotal.main.ep.inst.manager.${MANAGER}.describe.${dotForm(me.principal)}.${me.uid}.${"n".repeat(26)}`;
    const error: unknown = await nc.request(asked, "", { timeout: 5000 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RequestError);
    expect(error).toMatchObject({ cause: expect.any(NoRespondersError) as NoRespondersError });
    expect(denied).toEqual([]);
  });

  test("W9.12 W10.33 a managed agent comes in by its secret, as an agent and as a caller; without spawn it may describe", async () => {
    const secret = randomBytes(24).toString("base64url");
    const secretDigest = createHash("sha256").update(secret).digest("hex");
    await grant("robot", { kind: "managed", secretDigest });
    const robot: AgentCredentials = {
      kind: "agent",
      exchange: () => auth.face(),
      owner,
      actor: "robot",
      space: "main",
      secret,
    };
    const session = await connect({ servers: [space.url], credentials: robot, presence: false });
    closers.push(() => session.close());
    expect(session.me).toMatchObject({ id: `${owner}.robot`, mode: "auth" });
    await session.send("general", "hello");
    const caller = await asView({ ...robot, asks: { view: "manager-caller", managerInstanceId: MANAGER } });
    const call = (command: string): Probe => ({
      op: "pub",
      subject: `cotal.main.ep.inst.manager.${MANAGER}.${command}.${owner}.robot.${caller.me.uid}.${"n".repeat(26)}`,
    });
    const probes = ["describe", "spawn", "ps"].map(call);
    expect(await createProber(caller.nc).refused(probes)).toEqual(probes.slice(1));
    await expectNothingMore(caller);
    const wrong = await failure(connect({ servers: [space.url], credentials: { ...robot, secret: "wrong" } }));
    expect(wrong).toMatchObject({ code: "unauthenticated" });
    expect(JSON.stringify([wrong.message, wrong.next, auth.log()])).not.toContain(secret);
  });

  test("W10.16 session-caller speaks and hears in its one session, until the grant ends", async () => {
    const { lifecycleUid } = ExchangeAnswer.parse(
      (await auth.post(ExchangePath.Exchange, { space: "main", actor: "cli", idToken: await idToken() })).body,
    );
    const sessionId = "s".repeat(26);
    const exp = Math.floor(Date.now() / 1000) + 3600;
    const row = {
      sessionId,
      endpoint: "manager",
      serving: { instanceId: MANAGER, epoch: 4 },
      holder: { owner, actor: "cli", lifecycleUid },
      credentials: { holder: "one", serving: "other" },
      revoked: { holder: false, serving: false },
      state: "active",
      exp,
      grantSig: "the.signature",
    };
    const key = kvKey(names.bucket.sessions, `session.${sessionId}`);
    await put(store, key, JSON.stringify(row));
    const sessionGrant = { endpoint: "manager", sessionId, epoch: 4, sig: "the.signature" };
    const asks = { view: "session-caller", sessionGrant } as const;
    const caller = await asView(signedIn("cli", asks));
    const root = await frontRoot(space, "main");
    const rail = (side: string): string => `cotal.main.eps.manager.${sessionId}.4.${side}`;
    const spoken = await tap(root, rail("in"));
    const heard = await tap(caller.nc, rail("out"));
    caller.nc.publish(rail("in"), "keys");
    root.publish(rail("out"), "screen");
    await until("both came", () => spoken.messages.length === 1 && heard.messages.length === 1);
    const wrong: Probe[] = [
      { op: "pub", subject: rail("out") },
      { op: "sub", subject: rail("in") },
      { op: "sub", subject: "cotal.main.eps.>" },
    ];
    expect(await createProber(caller.nc).refused(wrong)).toEqual(wrong);
    await expectNothingMore(caller);
    // It was closed since: nobody comes in under it any more.
    await put(store, key, JSON.stringify({ ...row, state: "closed" }));
    expect(await failure(asView(signedIn("cli", asks)))).toMatchObject({ code: "expired" });
  });

  test("W10.17 the auth service's own credential looks at the store of sessions and reads a row at the leader; nothing else", async () => {
    const scope = { ...freshHolder(`u_${"d".repeat(26)}`, "auth"), space: "main" };
    const nc = await space.connect(await daemonCredential(space, "auth-ledger", "store", scope));
    const stream = "KV_cotal_sessions_main";
    await put(store, "$KV.cotal_sessions_main.session.probe", "{}");
    expect(await api(nc, `STREAM.INFO.${stream}`)).toMatchObject({ config: { name: stream, allow_direct: false } });
    const last = { last_by_subj: "$KV.cotal_sessions_main.session.probe" };
    expect(await api(nc, `STREAM.MSG.GET.${stream}`, last)).toHaveProperty("message");
    const before = await streamState(store, stream);
    const refused: Probe[] = [
      "$KV.cotal_sessions_main.session.probe",
      "$KV.cotal_sessions_main.session.other",
      jsApi.directGet(stream),
      jsApi.directGetLast(stream, last.last_by_subj),
      jsApi.consumerCreateBare(stream),
      jsApi.consumerCreate(stream, "x"),
      jsApi.consumerCreateFiltered(stream, "x", "$KV.cotal_sessions_main.>"),
      jsApi.consumerCreateDurable(stream, "x"),
      jsApi.streamPurge(stream),
      jsApi.streamUpdate(stream),
      jsApi.streamDelete(stream),
      jsApi.messageDelete(stream),
    ].map((subject) => ({ op: "pub", subject }));
    const taps: Probe[] = [{ op: "sub", subject: "$KV.cotal_sessions_main.>" }];
    expect(await createProber(nc).refused([...refused, ...taps])).toEqual([...refused, ...taps]);
    const { messages, lastSeq } = await streamState(store, stream);
    expect({ messages, lastSeq }).toEqual({ messages: before.messages, lastSeq: before.lastSeq });
  });
});

describe("transfer-writer", () => {
  test("W9.09 W10.18 uploads one transcript into one instance's bucket, and reads nothing", async () => {
    const bucket = transferBucket("main", MANAGER);
    await ensureStreams(store, [transferStream("main", MANAGER, { replicas: 1 })]);
    const hex = createHash("sha256").update("a transcript").digest("hex");
    const transferWriter = { instanceId: MANAGER, hex };
    const writer = await asView(signedIn("cli", { view: "transfer-writer", transferWriter }));
    const chunk = objectChunks(bucket, hex);
    const first = await put(writer.nc, chunk, "a trans", { "Nats-Expected-Last-Subject-Sequence": "0" });
    const second = await put(writer.nc, chunk, "cript", {
      "Nats-Expected-Last-Subject-Sequence": String(first["seq"]),
    });
    expect([first["stream"], Number(second["seq"]) > Number(first["seq"])]).toEqual([objectStream(bucket), true]);
    await put(writer.nc, objectMeta(bucket, transferObject(hex)), "{}");
    expect((await streamState(store, objectStream(bucket))).messages).toBe(3);
    const wrong: Probe[] = [
      objectChunks(bucket, "ab".repeat(32)),
      objectChunks(transferBucket("main", "o".repeat(26)), hex),
      jsApi.directGetLast(objectStream(bucket), chunk),
      jsApi.streamInfo(objectStream(bucket)),
    ].map((subject) => ({ op: "pub", subject }));
    expect(await createProber(writer.nc).refused(wrong)).toEqual(wrong);
    await expectNothingMore(writer);
  });
});

describe("dm-reader", () => {
  const dmToken = (lifecycle: string, claims: object = {}): Promise<string> =>
    issuer.sign({
      aud: "cotal-dm",
      sub: "person",
      purpose: "dm-reader",
      lifecycle,
      space: "main",
      ...claims,
    });

  /** One of its own for each test: what is left in one comes again in nobody else's. */
  async function mailbox(actor: string) {
    await grant(actor, {});
    const body = { space: "main", actor, idToken: await idToken() };
    const { lifecycleUid } = ExchangeAnswer.parse((await auth.post(ExchangePath.Exchange, body)).body);
    const { url, capability } = auth.face();
    const token = (claims: object = {}) => dmToken(lifecycleUid, { actor, ...claims });
    const options: DmReaderOptions = {
      servers: [space.url],
      exchange: { url, capability },
      idToken: () => token(),
      space: "main",
      actor,
    };
    return { id: `${owner}.${actor}`, token, options };
  }

  test("W9.11 W10.19 reads its inbox, acknowledges what was taken, gives back what was not, and holds nothing more", async () => {
    const { id, options } = await mailbox("read");
    const sender = await peer();
    for (const text of ["one", "two", "three"]) await sender.dm(id, text);
    const reader = await openDmReader(options);
    expect(reader.id).toBe(id);
    const got: string[] = [];
    for await (const item of reader.inbox()) {
      got.push(`${item.kind} ${item.from.id} ${item.text}`);
      if (got.length === 2) break;
    }
    expect(got).toEqual([`dm ${owner}.peer one`, `dm ${owner}.peer two`]);
    expect(reader.state()).toBe("ok");
    await reader.close();
    expect(await reader.closed).toBeUndefined();
    // Leaving the loop acknowledges nothing of the one in hand.
    const again = await openDmReader(options);
    closers.push(() => again.close());
    const rest: string[] = [];
    for await (const item of again.inbox()) {
      rest.push(item.text);
      item.ack();
      if (rest.length === 2) break;
    }
    expect(rest.toSorted()).toEqual(["three", "two"]);
  });

  test("W9.11 the connection asks for nothing else: no account, stream or consumer information, no chat, no presence", async () => {
    const { token } = await mailbox("probed");
    const viewed = await asView({ ...signedIn("probed", { view: "dm-reader" }), idToken: () => token() });
    const durable = dmDurable(viewed.me.principal, viewed.me.uid);
    const wrong: Probe[] = [
      jsApi.info,
      jsApi.streamInfo(names.dm),
      jsApi.consumerInfo(names.dm, durable),
      jsApi.consumerDelete(names.dm, durable),
      jsApi.consumerCreate(names.dm, durable),
      jsApi.next(names.dm, `${durable.slice(0, -1)}${durable.endsWith("x") ? "y" : "x"}`),
      `cotal.main.ep.one.provisioner.space.${owner}.probed.${viewed.me.uid}.${"n".repeat(26)}`,
    ].map((subject) => ({ op: "pub", subject }));
    expect(await createProber(viewed.nc).refused(wrong)).toEqual(wrong);
    await expectNothingMore(viewed, [jsApi.next(names.dm, durable)]);
  });

  test("W10.19 reading ends with the token that it was opened with, in a named state; nothing of what was left is lost", async () => {
    const { id, token, options } = await mailbox("expiring");
    const exp = Math.floor(Date.now() / 1000) + 6;
    const reader = await openDmReader({ ...options, idToken: () => token({ exp }) });
    expect(reader.expiresAt).toBe(exp);
    const sender = await peer();
    const reading = (async () => {
      for await (const item of reader.inbox()) expect(item.text).toBe("while it lasts");
    })();
    await sender.dm(id, "while it lasts");
    expect(await failure(reading)).toMatchObject({ code: "expired" });
    expect(await reader.closed).toMatchObject({ code: "expired", outcome: "not-executed" });
    expect(Date.now()).toBeLessThanOrEqual((exp + 3) * 1000);
    await sender.dm(id, "later");
    const next = await openDmReader(options);
    closers.push(() => next.close());
    for await (const item of next.inbox()) {
      if (item.text === "later") break;
      expect(item.text).toBe("while it lasts");
    }
  });

  test("a broker that goes away and comes back is met with the same bearer", async () => {
    const { id, options } = await mailbox("restarted");
    const reader = await openDmReader(options);
    closers.push(() => reader.close());
    const inbox = reader.inbox();
    const next = inbox.next();
    await space.broker.kill();
    await space.broker.restart();
    const sender = await peer();
    await sender.dm(id, "after the restart");
    const { value } = await next;
    expect(value?.text).toBe("after the restart");
    // The plane is claimed anew, by itself.
    await expect.poll(() => grant("after", {}).catch(() => undefined), { timeout: 20_000 }).toBe(owner);
  });

  test("what the exchange refuses is the error, before anything is dialled, and the token is in no text", async () => {
    const { token, options } = await mailbox("refused");
    const foreign = await token({ actor: "other" });
    const error = await failure(openDmReader({ ...options, servers: ["127.0.0.1:1"], idToken: async () => foreign }));
    expect(error).toMatchObject({ code: "unauthenticated", outcome: "not-executed" });
    expect(`${error.message} ${error.next} ${error.stack}`).not.toContain(foreign);
    expect(await failure(openDmReader({ ...options, idToken }))).toMatchObject({ code: "unauthenticated" });
  });
});
