/** Calling somebody else's endpoint over a real broker: what is sent, and what is known when it fails (§13.2 to §13.5). */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { ownDigests } from "../../shared/client/own-digests.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { randomBytes } from "node:crypto";
import { REQUEST_NONCE } from "../../shared/protocol/base/grammar.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { parseReplySubject, parseRequestSubject } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { ENDPOINT, SPACE, type CallerRig, callerOn, contract, dial, me } from "../support/endpoint-rig.ts";
import {
  type Behaviour,
  type Foreign,
  NOTHING,
  type Told,
  artifactsOf,
  noResponders,
  startForeign,
  startReads,
} from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let rig: CallerRig;
let foreign: Foreign;
const told: Told = { artifacts: artifactsOf(contract), endpoints: [] };

/** What the server does with each command; a test puts its own. */
let behaviour: Record<string, Behaviour> = {};
const lawful: Record<string, Behaviour> = {
  look: ({ request }) => ({ seen: (request.args as { at: string }).at }),
  put: () => null,
  nudge: () => null,
};
const acting = (name: string): Behaviour => {
  return (received) => (behaviour[name] ?? lawful[name])?.(received);
};

const startClerk = (more: { readonly instanceId?: string; readonly epoch?: number } = {}): Promise<Foreign> =>
  startForeign({
    nc: server.nc,
    space: SPACE,
    endpoint: ENDPOINT,
    contract,
    commands: { look: acting("look"), put: acting("put"), nudge: acting("nudge") },
    ...more,
  });

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  await startReads(server.nc, SPACE, told);
  foreign = await startClerk();
  rig = callerOn(asker.nc, asker.inboxPrefix);
});
afterEach(() => {
  behaviour = {};
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

/** The connection with a note of what is asked of it, in order. */
function traced(nc: NatsConnection): {
  readonly nc: NatsConnection;
  readonly steps: [what: string, subject: string][];
} {
  const steps: [string, string][] = [];
  const spied = new Proxy(nc, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...given: unknown[]): unknown => {
        if (name === "subscribe" || name === "publish") steps.push([name, String(given[0])]);
        return Reflect.apply(value, target, given) as unknown;
      };
    },
  });
  return { nc: spied, steps };
}

describe("what goes out", () => {
  test("W135.01 W132.12: a call is answered by who serves it, and says who that was", async () => {
    expect(await rig.client.call(ENDPOINT, "look", { at: "here" })).toEqual({
      data: { seen: "here" },
      instanceId: foreign.instanceId,
      epoch: foreign.epoch,
    });
  });

  test("W133.02: both digests are pinned on a call, and none on describe", async () => {
    await rig.client.describe(ENDPOINT);
    expect(foreign.received.at(-1)?.request.op).toEqual({ endpoint: ENDPOINT, command: "describe" });
    await rig.client.call(ENDPOINT, "look", { at: "x" });
    const declared = contract.commands.get("look")?.document;
    expect(foreign.received.at(-1)?.request).toMatchObject({
      op: { inputDigest: declared?.inputDigest, outputDigest: declared?.outputDigest },
      class: "ephemeral",
      replyExpected: true,
    });
  });

  test("W133.02: the caller of our own endpoints pins the digests that they serve", async () => {
    const call = createCaller({
      nc: asker.nc,
      space: SPACE,
      caller: me,
      name: "caller",
      inboxPrefix: asker.inboxPrefix,
      denials: watchDenials(asker.nc),
      random: randomBytes,
    });
    const auth = await startForeign({
      nc: server.nc,
      space: SPACE,
      endpoint: "auth",
      commands: { "actor-list": () => ({}) },
    });
    await call("auth", "actor-list", {});
    expect(auth.received[0]?.request.op).toMatchObject(ownDigests("auth", "actor-list") ?? { none: true });
    await auth.stop();
    for (const endpoint of ["provisioner", "auth", "delivery"] as const) {
      for (const [name, { document }] of ownContract(endpoint).commands) {
        const { inputDigest, outputDigest } = document;
        expect({ name, ...ownDigests(endpoint, name) }).toEqual({ name, inputDigest, outputDigest });
      }
    }
  });

  test("W132.06: the exact nonce subject is subscribed before the request is published, and no nonce comes twice", async () => {
    const { nc, steps } = traced(asker.nc);
    const own = callerOn(nc, asker.inboxPrefix);
    await Promise.all([1, 2, 3].map((n) => own.client.call(ENDPOINT, "look", { at: String(n) })));
    const requests = steps.filter(([what]) => what === "publish").map(([, subject]) => parseRequestSubject(subject));
    const nonces = requests.map((request) => request?.nonce ?? "");
    expect(new Set(nonces).size).toBe(nonces.length);
    for (const nonce of nonces) {
      expect(nonce).toMatch(REQUEST_NONCE);
      const subscribed = steps.findIndex(([what, subject]) => what === "subscribe" && subject.endsWith(`.${nonce}`));
      const published = steps.findIndex(([what, subject]) => what === "publish" && subject.endsWith(`.${nonce}`));
      expect(subscribed).toBeGreaterThanOrEqual(0);
      expect(published).toBeGreaterThan(subscribed);
      // Only which instance answers is open; whom it answers, and to what, is exact.
      const [, reply = ""] = steps[subscribed] ?? [];
      expect(reply).toMatch(/\.ep\.reply\.(?:com_acme_clerk|delivery)\.\*\.\*\.[^*]+$/);
      expect(reply).toContain(`.${me.principal.owner}.${me.principal.actor}.${me.uid}.`);
    }
    expect(own.rail.pending()).toBe(0);
  });

  test("arguments that do not fit are refused before anything is sent, and it is said where", async () => {
    const before = foreign.received.length;
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: 7 }))).toMatchObject({
      code: "bad-request",
      outcome: "not-executed",
      message: expect.stringContaining("/at") as string,
    });
    expect(foreign.received.slice(before).filter(({ subject }) => subject.command === "look")).toEqual([]);
  });

  test("a command that the descriptor does not show is not-found, with advice", async () => {
    expect(await failure(rig.client.call(ENDPOINT, "nothing", {}))).toMatchObject({
      code: "not-found",
      outcome: "not-executed",
      next: expect.any(String) as string,
    });
  });

  test("a targeted command carries its target in subject and body, and one without is refused", async () => {
    const uid = drawLifecycleUid(randomBytes);
    const target = { mode: "exact", owner: "local", actor: "bob", lifecycleUid: uid } as const;
    await rig.client.call(ENDPOINT, "nudge", undefined, { target });
    expect(foreign.received.at(-1)).toMatchObject({
      subject: { target: { mode: "exact", owner: "local", actor: "bob", uid } },
      request: { target: { owner: "local", actor: "bob", lifecycleUid: uid } },
    });
    await rig.client.call(ENDPOINT, "nudge", undefined, { target: { mode: "self" } });
    expect(foreign.received.at(-1)?.subject.target).toEqual({ mode: "self" });
    expect(foreign.received.at(-1)?.request.target).toBeUndefined();
    for (const wrong of [{}, { target: { ...target, mode: "any" } as const }]) {
      expect(await failure(rig.client.call(ENDPOINT, "nudge", undefined, wrong))).toMatchObject({
        code: "bad-request",
        outcome: "not-executed",
      });
    }
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }, { target }))).toMatchObject({
      code: "bad-request",
    });
  });

  test("W6.12: a peer that does not say which protocol it speaks is not addressed", async () => {
    const old = callerOn(asker.nc, asker.inboxPrefix, {
      peer: ({ actor }) =>
        Promise.resolve(actor === "old" ? {} : actor === "new" ? { protocolVersion: "0.5" } : undefined),
    });
    const uid = drawLifecycleUid(randomBytes);
    const nudge = (actor: string) =>
      old.client.call(ENDPOINT, "nudge", undefined, {
        target: { mode: "owner", owner: "local", actor, lifecycleUid: uid },
      });
    const before = foreign.received.length;
    expect(await failure(nudge("old"))).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(foreign.received.slice(before).filter(({ subject }) => subject.command === "nudge")).toEqual([]);
    await nudge("new");
    await nudge("unknown");
    expect(foreign.received.slice(before).filter(({ subject }) => subject.command === "nudge")).toHaveLength(2);
  });
});

describe("what is known when there is no data", () => {
  test("W134.01 W135.01: nobody serves it: unavailable at once, not executed", async () => {
    expect(await failure(rig.client.call("com.acme.nobody", "look", {}))).toMatchObject({
      code: "unavailable",
      outcome: "not-executed",
    });
    const short = await startForeign({
      nc: server.nc,
      space: SPACE,
      endpoint: "com.acme.short",
      contract,
      commands: lawful,
    });
    await rig.client.call("com.acme.short", "look", { at: "1" });
    await short.stop();
    // Resolved before, and gone now.
    expect(await failure(rig.client.call("com.acme.short", "look", { at: "2" }))).toMatchObject({
      code: "unavailable",
      outcome: "not-executed",
    });
  });

  test("W133.09: several callers on one connection each hear the broker's word on their own requests", async () => {
    const rigs = [1, 2, 3].map(() => callerOn(asker.nc, asker.inboxPrefix));
    for (const { client } of [...rigs, ...rigs.toReversed()]) {
      expect(await failure(client.call("com.acme.nobody", "look", {}))).toMatchObject({ code: "unavailable" });
    }
  });

  test("W133.09: silence until the deadline is unknown", async () => {
    behaviour = { put: () => NOTHING };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }, { deadlineMs: 200 }))).toMatchObject({
      code: "deadline-exceeded",
      outcome: "unknown",
    });
  });

  test("W133.09: a connection that closes after the request is unknown, and before it not executed", async () => {
    const brief = await dial(broker.url, "brief");
    const own = callerOn(brief.nc, brief.inboxPrefix);
    let came: () => void = () => undefined;
    const arrived = new Promise<void>((resolve) => {
      came = resolve;
    });
    behaviour = {
      put: () => {
        came();
        return NOTHING;
      },
    };
    const pending = failure(own.client.call(ENDPOINT, "put", { at: "x" }));
    await arrived;
    await brief.close();
    expect(await pending).toMatchObject({ code: "unavailable", outcome: "unknown" });
    expect(await failure(own.client.call(ENDPOINT, "put", { at: "x" }))).toMatchObject({
      code: "unavailable",
      outcome: "not-executed",
    });
  });

  test("W133.09: the broker's status is believed on the sentinel alone: forged on the reply subject it is unknown", async () => {
    behaviour = {
      put: ({ subject, message }) => {
        const target = `cotal.${SPACE}.ep.reply.${ENDPOINT.replaceAll(".", "_")}.${foreign.instanceId}.${foreign.epoch}`;
        const tail = `${subject.owner}.${subject.actor}.${subject.uid}.${subject.nonce}`;
        expect(message.reply).not.toBe(`${target}.${tail}`);
        server.nc.publish(`${target}.${tail}`, undefined, { headers: noResponders() });
        return NOTHING;
      },
    };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).toMatchObject({
      code: "internal",
      outcome: "unknown",
    });
  });

  test.each([
    { said: "executed", outcome: "executed" },
    { said: "not-executed", outcome: "not-executed" },
    { said: "unknown", outcome: "unknown" },
    { said: undefined, outcome: "unknown" },
  ])("W133.08: a refusal that says $said is read as $outcome", async ({ said, outcome }) => {
    behaviour = {
      put: ({ answer }) => {
        answer({
          ok: false,
          error: { code: "conflict", message: "taken", ...(said === undefined ? {} : { outcome: said }) },
        });
        return NOTHING;
      },
    };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).toMatchObject({ code: "conflict", outcome });
  });

  test("W133.09: data that does not fit its contract is refused, and the command ran", async () => {
    behaviour = { look: () => ({ seen: 7 }) };
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "contract-mismatch",
      outcome: "executed",
    });
  });

  test.each(["{", "[]", '{"v":1}', '{"v":2,"id":"x","ok":true}', ""])(
    "an answer of %j proves nothing",
    async (text) => {
      behaviour = {
        put: ({ answer }) => {
          answer(text);
          return NOTHING;
        },
      };
      expect((await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).outcome).toBe("unknown");
    },
  );

  test("an answer under another id is none of ours", async () => {
    behaviour = {
      put: ({ answer }) => {
        answer(JSON.stringify({ v: 1, id: "other", ok: true }));
        return NOTHING;
      },
    };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).toMatchObject({
      code: "internal",
      outcome: "unknown",
    });
  });

  test("more calls at once than the bound are refused before they are sent: resource-exhausted", async () => {
    const narrow = callerOn(asker.nc, asker.inboxPrefix, { rail: { maxPending: 3 } });
    await narrow.client.resolve(ENDPOINT, "put");
    const release: (() => void)[] = [];
    behaviour = {
      put: () =>
        new Promise((resolve) => {
          release.push(() => resolve(null));
        }),
    };
    const running = [1, 2, 3].map((n) => narrow.client.call(ENDPOINT, "put", { at: String(n) }));
    await expect.poll(() => release.length).toBe(3);
    const before = foreign.received.length;
    expect(await failure(narrow.client.call(ENDPOINT, "put", { at: "4" }))).toMatchObject({
      code: "resource-exhausted",
      outcome: "not-executed",
    });
    expect(foreign.received).toHaveLength(before);
    for (const end of release) end();
    await Promise.all(running);
    behaviour = {};
    await narrow.client.call(ENDPOINT, "put", { at: "5" });
  });

  test("PD.01: 1024 calls wait at once by default, and the next one is refused", async () => {
    await rig.client.resolve(ENDPOINT, "put");
    behaviour = { put: () => NOTHING };
    const ends = Promise.allSettled(
      Array.from({ length: 1024 }, () => rig.client.call(ENDPOINT, "put", { at: "x" }, { deadlineMs: 1500 })),
    );
    await expect.poll(() => rig.rail.pending()).toBe(1024);
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "one more" }))).toMatchObject({
      code: "resource-exhausted",
      outcome: "not-executed",
    });
    expect((await ends).every(({ status }) => status === "rejected")).toBe(true);
    expect(rig.rail.pending()).toBe(0);
  });

  test.each([0, -1, 1.5, 600_001])("a deadline of %d is refused before anything is sent", async (deadlineMs) => {
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }, { deadlineMs }))).toMatchObject({
      code: "bad-request",
      outcome: "not-executed",
    });
  });
});

describe("which incarnation answers", () => {
  test("W132.12: an incarnation that was succeeded is rejected, with what it says of the effect", async () => {
    const own = callerOn(asker.nc, asker.inboxPrefix);
    await own.client.call(ENDPOINT, "look", { at: "x" });
    behaviour = {
      look: ({ answer }) => {
        answer({ ok: true, data: { seen: "x" } }, { epoch: foreign.epoch - 1 });
        return NOTHING;
      },
    };
    expect(await failure(own.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "expired",
      outcome: "executed",
    });
    behaviour = {
      look: ({ answer }) => {
        const error = { code: "internal", message: "no", outcome: "not-executed" };
        answer({ ok: false, error }, { epoch: foreign.epoch - 1 });
        return NOTHING;
      },
    };
    expect(await failure(own.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "expired",
      outcome: "not-executed",
    });
  });

  test("W132.12: a bound call takes an effect from no other instance", async () => {
    const bind = { instanceId: foreign.instanceId, epoch: foreign.epoch };
    behaviour = {
      put: ({ answer, request }) => {
        expect(request.bind).toEqual(bind);
        answer({ ok: true, data: null }, { instanceId: drawLifecycleUid(randomBytes) });
        return NOTHING;
      },
    };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }, { bind }))).toMatchObject({
      code: "failed-precondition",
      outcome: "executed",
      details: [expect.objectContaining({ kind: "ai.cotal.ep.unbound-responder" })],
    });
  });

  test("W132.14: a refusal of the bind by the very incarnation that was bound to is incoherent", async () => {
    const bind = { instanceId: foreign.instanceId, epoch: foreign.epoch };
    behaviour = {
      put: ({ answer }) => {
        const details = [{ kind: "ai.cotal.ep.bind-refused" }];
        answer({ ok: false, error: { code: "failed-precondition", message: "no", outcome: "not-executed", details } });
        return NOTHING;
      },
    };
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }, { bind }))).toMatchObject({
      code: "internal",
      outcome: "unknown",
    });
  });

  test("a bind to who described itself is renewed once, upon the proof that nothing ran", async () => {
    const own = callerOn(asker.nc, asker.inboxPrefix);
    await own.client.resolve(ENDPOINT, "put");
    await foreign.stop();
    const successor = await startClerk({ instanceId: foreign.instanceId, epoch: 9 });
    let ran = 0;
    behaviour = {
      put: ({ answer, request }) => {
        if (request.bind?.epoch === 9) return void (ran += 1);
        const details = [{ kind: "ai.cotal.ep.bind-refused" }];
        answer({ ok: false, error: { code: "expired", message: "no", outcome: "not-executed", details } });
        return NOTHING;
      },
    };
    expect(await own.client.call(ENDPOINT, "put", { at: "x" }, { bind: "described" })).toMatchObject({ epoch: 9 });
    expect(ran).toBe(1);
    await successor.stop();
    foreign = await startClerk();
  });

  test("one instance is called on its own rail", async () => {
    const other = await startClerk();
    for (const { instanceId } of [foreign, other]) {
      expect(await rig.client.call(ENDPOINT, "look", { at: "x" }, { instance: instanceId })).toMatchObject({
        instanceId,
      });
    }
    await other.stop();
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }, { instance: other.instanceId }))).toMatchObject(
      {
        code: "unavailable",
        outcome: "not-executed",
      },
    );
  });
});

describe("cast", () => {
  test("W135.02: a cast arrives as one, and is not waited for", async () => {
    const before = foreign.received.length;
    await rig.client.cast(ENDPOINT, "put", { at: "x" });
    await expect.poll(() => foreign.received.length).toBeGreaterThan(before);
    expect(foreign.received.at(-1)?.request).toMatchObject({ replyExpected: false, args: { at: "x" } });
    expect(foreign.received.at(-1)?.request.deadlineMs).toBeUndefined();
    expect(rig.rail.pending()).toBe(0);
  });

  test("W135.02: an answer to a cast reaches nobody", async () => {
    const { nc, steps } = traced(asker.nc);
    const own = callerOn(nc, asker.inboxPrefix);
    await own.client.resolve(ENDPOINT, "put");
    const from = steps.length;
    await own.client.cast(ENDPOINT, "put", { at: "x" });
    const subscribed = steps.slice(from).filter(([what]) => what === "subscribe");
    expect(subscribed.filter(([, subject]) => parseReplySubject(subject.replaceAll("*", "0")) !== undefined)).toEqual(
      [],
    );
    expect(subscribed).toEqual([]);
  });

  test.each(["call", "cast"] as const)(
    "W135.02: a %s of journaled work is class-mismatch, before anything is sent",
    async (verb) => {
      const before = foreign.received.filter(({ subject }) => subject.command === "file").length;
      expect(await failure(rig.client[verb](ENDPOINT, "file", undefined))).toMatchObject({
        code: "class-mismatch",
        outcome: "not-executed",
      });
      expect(foreign.received.filter(({ subject }) => subject.command === "file")).toHaveLength(before);
    },
  );
});
