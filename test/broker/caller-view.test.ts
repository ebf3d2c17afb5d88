/**
 * `describe` of somebody's endpoint, cut to what the ledger says of the asker (PA.10, H21): the provisioner's
 * answer over rows of a real broker, and a server that asks for it.
 */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { callerView } from "../../services/provisioner/caller-view.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { ensureStreams } from "../../shared/broker/ensure.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { trustedView } from "../../shared/endpoint/trusted-view.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { type Principal, OPEN_OWNER, drawLifecycleUid, principal } from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { readDescriptor } from "../../shared/protocol/contract/descriptor.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { CallerViewArgs } from "../../shared/protocol/endpoint/caller-view-shapes.ts";
import { type Caller, EndpointName, endpointToken } from "../../shared/protocol/endpoint/grammar.ts";
import { type ServedEndpoint, handlersOf, serveEndpoint } from "../../shared/serve/serve.ts";
import { type Foreign, NOTHING, startForeign } from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import { SPACE, ask, bodyOf, dial } from "../support/serve-rig.ts";

const ENDPOINT = "com.example.echo";
const OWNER = `u_${"a".repeat(26)}`;
const OTHER = `u_${"b".repeat(26)}`;
const names = spaceNames(SPACE);
const ECHO = defineCluster({
  urn: "com.example.echo.v1",
  revision: 1,
  commands: [
    { name: "say", class: "ephemeral", effect: "read", output: z.string() },
    { name: "audit", class: "ephemeral", effect: "read", capability: "audit", output: z.string() },
    { name: "poke", class: "ephemeral", effect: "write", modes: ["self", "any"] },
  ],
});
const contract = compileContract([ECHO], createValidators());

let broker: TestBroker;
let store: Connection;
let asker: Connection;
let server: Connection;

beforeAll(async () => {
  broker = await startBroker();
  [store, asker, server] = await Promise.all([
    dial(broker.url, "store"),
    dial(broker.url, "asker"),
    dial(broker.url, "server"),
  ]);
  await ensureStreams(store.nc, spaceStreams(SPACE, { replicas: 1 }));
});
afterAll(async () => {
  await Promise.all([store, asker, server].map((connection) => connection.close()));
  await broker.stop();
});

const someone = (who: Principal): Caller => ({ principal: who, uid: drawLifecycleUid(randomBytes) });
const context = (auth: "static" | "open" = "static") => ({ store: store.nc, names, settings: { auth } });
const put = (bucket: "records" | "acl", key: string, value: unknown) =>
  store.nc.request(kvKey(names.bucket[bucket], key), typeof value === "string" ? value : JSON.stringify(value));

async function register(endpoint: string, owner: string): Promise<void> {
  const spec = { endpoint, owner, clusterDigests: [], protocol: { v: 2 } };
  await put("records", `svc.${endpointToken(endpoint)}.${drawLifecycleUid(randomBytes)}.spec`, spec);
}

/** What the broker has accepted for a lifecycle, as the callout writes it. */
async function grant({ principal: { owner, actor }, uid }: Caller, capabilities?: readonly string[]): Promise<void> {
  await put("acl", `${owner}.${actor}.${uid}`, {
    v: 1,
    name: actor,
    allowSubscribe: [],
    ...(capabilities === undefined ? {} : { capabilities }),
    durables: true,
    credential: `U${"A".repeat(55)}`,
    at: 1,
  });
}

const argsOf = ({ principal: { owner, actor }, uid }: Caller, endpoint = ENDPOINT) => ({
  endpoint,
  caller: { owner, actor, uid },
});

describe("what the provisioner tells", () => {
  const service = someone({ owner: OWNER, actor: "service" });
  beforeAll(() => register(ENDPOINT, OWNER));

  test("PA.10 what was accepted for exactly that lifecycle, and of that endpoint alone", async () => {
    const alice = someone({ owner: OTHER, actor: "alice" });
    const list = ["com.example.echo", "com.example.echo:audit@all", "com.example.other", "serve"];
    await grant(alice, list);
    expect(await callerView(context(), service, argsOf(alice))).toEqual({
      capabilities: ["com.example.echo", "com.example.echo:audit@all"],
    });
    const successor = { ...alice, uid: drawLifecycleUid(randomBytes) };
    expect(await callerView(context(), service, argsOf(successor))).toEqual({ capabilities: [] });
  });

  test("PA.10 nothing of who has no row, one without the field, one that is gone, or one that does not parse", async () => {
    const [none, old, gone, odd] = ["none", "old", "gone", "odd"].map((actor) => someone({ owner: OTHER, actor }));
    if (none === undefined || old === undefined || gone === undefined || odd === undefined) throw new Error("four");
    await grant(old);
    await grant(gone, [ENDPOINT]);
    const key = `${OTHER}.gone.${gone.uid}`;
    const removed = await store.nc.request(
      jsApi.streamPurge(bucketStream(names.bucket.acl)),
      JSON.stringify({ filter: kvKey(names.bucket.acl, key) }),
    );
    expect(removed.json()).toMatchObject({ success: true });
    await put("acl", `${OTHER}.odd.${odd.uid}`, { v: 1, capabilities: [ENDPOINT] });
    for (const caller of [none, old, gone, odd]) {
      expect(await callerView(context(), service, argsOf(caller))).toEqual({ capabilities: [] });
    }
  });

  test("PA.10 a narrowing holds with the next question", async () => {
    const bob = someone({ owner: OTHER, actor: "bob" });
    await grant(bob, [ENDPOINT]);
    expect(await callerView(context(), service, argsOf(bob))).toEqual({ capabilities: [ENDPOINT] });
    await grant(bob, []);
    expect(await callerView(context(), service, argsOf(bob))).toEqual({ capabilities: [] });
  });

  test("PA.10 only the owner of that endpoint is told: of another's, and of a name that nobody serves, the same refusal", async () => {
    await register("com.example.theirs", OTHER);
    const alice = someone({ owner: OTHER, actor: "alice" });
    await grant(alice, ["com.example.theirs", "com.example.nothing"]);
    for (const endpoint of ["com.example.theirs", "com.example.nothing", "provisioner"]) {
      const refused = await failure(callerView(context(), service, argsOf(alice, endpoint)));
      expect(refused).toMatchObject({
        code: "permission-denied",
        outcome: "not-executed",
        message: `you serve no endpoint ${endpoint} here`,
      });
    }
    // Another actor of the same owner may: the name is the owner's.
    const other = someone({ owner: OWNER, actor: "other" });
    expect(await callerView(context(), other, argsOf(alice))).toEqual({ capabilities: [] });
  });

  test("a row that is no registration does not say whose the name is", async () => {
    const odd = "com.example.odd";
    const lead = `svc.${endpointToken(odd)}`;
    await put("records", `${lead}.${drawLifecycleUid(randomBytes)}.spec`, "text");
    await put("records", `${lead}.${drawLifecycleUid(randomBytes)}.spec`, { endpoint: ENDPOINT, owner: OTHER });
    expect((await failure(callerView(context(), service, argsOf(service, odd)))).code).toBe("permission-denied");
    await register(odd, OWNER);
    expect(await callerView(context(), service, argsOf(service, odd))).toEqual({ capabilities: [] });
  });

  test("in an open space nothing limits anybody, and it says so", async () => {
    expect(await callerView(context("open"), service, argsOf(service))).toEqual({ capabilities: null });
  });

  test.each([
    ["a name that is none", { ...argsOf(service), endpoint: "Com.Example" }],
    ["a wildcard for an owner", { endpoint: ENDPOINT, caller: { owner: "*", actor: "a", uid: service.uid } }],
    ["a wildcard for an actor", { endpoint: ENDPOINT, caller: { owner: OWNER, actor: ">", uid: service.uid } }],
    ["a uid that is none", { endpoint: ENDPOINT, caller: { owner: OWNER, actor: "a", uid: "x.y" } }],
    ["more than is asked for", { ...argsOf(service), capabilities: ["com.example.echo"] }],
  ])("%s is no question", (_, args) => {
    expect(CallerViewArgs.safeParse(args).success).toBe(false);
  });
});

describe("what a server shows", () => {
  /** Serves the endpoint as an actor of the owner; the provisioner answers from the rows until it is taken away. */
  async function serving(): Promise<{ served: ServedEndpoint; provisioner: Foreign }> {
    const me = someone(principal(OWNER, "service"));
    const provisioner = await startForeign({
      nc: store.nc,
      space: SPACE,
      endpoint: EndpointName.Provisioner,
      commands: {
        "caller-view": async ({ request, subject, answer }) => {
          const { owner, actor, uid } = subject;
          const from: Caller = { principal: { owner, actor }, uid };
          try {
            return await callerView(context(), from, CallerViewArgs.parse(request.args));
          } catch (thrown) {
            const { code, message } = thrown as CotalError;
            answer({ ok: false, error: { code, message, outcome: "not-executed" } });
            return undefined;
          }
        },
      },
    });
    const call = createCaller({
      nc: server.nc,
      space: SPACE,
      caller: me,
      name: "service",
      inboxPrefix: server.inboxPrefix,
      denials: watchDenials(server.nc),
      random: randomBytes,
    });
    const served = await serveEndpoint({
      nc: server.nc,
      space: SPACE,
      endpoint: ENDPOINT,
      instanceId: drawLifecycleUid(randomBytes),
      epoch: 1,
      contract,
      handlers: handlersOf(ECHO, {
        say: () => Promise.resolve("hello"),
        audit: () => Promise.resolve("all is well"),
        poke: () => Promise.resolve(undefined),
      }),
      registrationRevision: () => 1,
      view: trustedView({ call, endpoint: ENDPOINT, contract, deadlineMs: 300 }),
      checkTarget: () => Promise.resolve(),
      concurrency: 16,
      perCaller: 16,
      onServed: () => undefined,
      now: () => performance.now(),
    });
    onTestFinished(() => served.stop());
    return { served, provisioner };
  }

  const bare = { op: { endpoint: ENDPOINT, command: "describe" }, args: undefined };
  const described = async (caller: Caller, claims: object = {}) => {
    const over = { ...bodyOf("describe", caller), ...bare, ...claims };
    const [heard] = await ask(asker.nc, "describe", { caller, over, at: { endpoint: ENDPOINT } });
    return heard?.reply;
  };
  const shown = async (caller: Caller, claims?: object) => {
    const reply = await described(caller, claims);
    const { commands } = readDescriptor(reply?.ok === true ? reply.data : undefined);
    return commands.map(({ name, modes }) => (modes === undefined ? name : `${name} ${modes.join(" ")}`));
  };

  test("PA.10 two callers get two answers, each by the ledger's word and not by what they claim", async () => {
    await register(ENDPOINT, OWNER);
    const { provisioner } = await serving();
    onTestFinished(() => provisioner.stop());
    const [alice, auditor, guest] = [
      someone(principal(OTHER, "alice")),
      someone(principal(OTHER, "auditor")),
      someone(principal(OPEN_OWNER, "guest")),
    ];
    await grant(alice, [ENDPOINT]);
    await grant(auditor, [`${ENDPOINT}:audit`]);
    expect(await shown(alice)).toEqual(["say", "poke self"]);
    expect(await shown(auditor)).toEqual(["audit"]);
    const claims = { capabilities: [ENDPOINT, `${ENDPOINT}:audit`], auth: "admin", view: "all", owner: OWNER };
    expect(await shown(guest, claims)).toEqual([]);
  });

  test("PA.10 a server whose provisioner is away answers unavailable, and shows again what it may once it is back", async () => {
    await register(ENDPOINT, OWNER);
    const first = await serving();
    const alice = someone(principal(OTHER, "alice"));
    await grant(alice, [ENDPOINT]);
    await first.provisioner.stop();
    expect(await described(alice)).toMatchObject({
      ok: false,
      error: { code: "unavailable", outcome: "not-executed" },
    });
    await first.served.stop();
    const second = await serving();
    onTestFinished(() => second.provisioner.stop());
    expect(await shown(alice)).toEqual(["say", "poke self"]);
  });

  test("PA.10 a provisioner that is silent costs the short deadline, and the answer is unavailable", async () => {
    await register(ENDPOINT, OWNER);
    const { provisioner } = await serving();
    await provisioner.stop();
    const silent = await startForeign({
      nc: store.nc,
      space: SPACE,
      endpoint: EndpointName.Provisioner,
      commands: { "caller-view": () => NOTHING },
    });
    onTestFinished(() => silent.stop());
    expect(await described(someone(principal(OTHER, "alice")))).toMatchObject({
      ok: false,
      error: { code: "unavailable" },
    });
    expect(silent.received).toHaveLength(1);
  });
});
