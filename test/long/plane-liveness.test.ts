/** Whether the delivery plane is served, as the daemon answers and a peer grades it (§6.1), over a real broker. */
import { randomUUID } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { frontRoot } from "../support/holders.ts";
import { put } from "../support/raw-jetstream.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";
import { until } from "../support/until.ts";

const LEASE = "$KV.cotal_leases_main.lease.delivery.fanout.0";

let space: TestSpace;
let delivery: DeliveryService;
let sessions: Sessions;
let store: NatsConnection;
let asker: TestSession;

beforeAll(async () => {
  space = await startSpace();
  delivery = startDeliveryService(space);
  sessions = sessionsOf(space);
  store = await space.store();
  asker = await sessions.minted({ actor: "asker" });
  await delivery.ready();
  await until("it is bound", async () => (await asker.liveness("delivery")).responder === "bound");
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await delivery.kill("SIGTERM");
  await space.stop();
});

/** Asks by hand, and gives what came: `silence` after a while. */
async function raw(nc: NatsConnection, subject: string, reply: string, ms: number): Promise<string> {
  const answers = nc.subscribe(reply, { max: 1 });
  nc.publish(subject, "", { reply });
  const timer = setTimeout(() => answers.unsubscribe(), ms);
  for await (const message of answers) {
    clearTimeout(timer);
    return message.headers?.code === 503 ? "503" : message.string();
  }
  return "silence";
}

const row = (change: object) =>
  JSON.stringify({ v: 1, holder: "other", principal: "p", epoch: 1, ready: true, at: 1, ...change });

describe("W61.02 W61.03 W61.04 a question and its answer", () => {
  test("W61.02 W61.04 the reply is under the request's own subject, and says plane, verdict and instance and nothing else", async () => {
    const root = await frontRoot(space, "main");
    const me = asker.me.id;
    const seen: string[] = [];
    const all = root.subscribe("cotal.main.live.>");
    void (async () => {
      for await (const message of all) seen.push(`${message.subject} ${message.reply ?? ""} ${message.string()}`);
    })();
    await root.flush();
    expect(await asker.liveness("delivery")).toMatchObject({ responder: "bound" });
    await until("both are seen", () => seen.length === 2);
    const [asked = "", answered = ""] = seen;
    const nonce = /^cotal\.main\.live\.delivery\.(\S+) cotal\.main\.live\.delivery\.(\S+)\.reply\.([\w-]{22,64}) $/;
    expect(nonce.exec(asked)?.slice(1, 3)).toEqual([me, me]);
    expect(answered.startsWith(`cotal.main.live.delivery.${me}.reply.`)).toBe(true);
    const body = JSON.parse(answered.split("  ")[1] ?? "{}") as Record<string, unknown>;
    expect(Object.keys(body).toSorted()).toEqual(["instance", "plane", "responder"]);
    expect(body).toMatchObject({ plane: "delivery", responder: "bound" });
    seen.length = 0;
    await asker.liveness("delivery");
    await until("both are seen", () => seen.length === 2);
    expect(seen[0]).not.toBe(asked);
    all.unsubscribe();
    await root.flush();
  }, 30_000);

  test("W61.03 a question with a foreign reply target, or none, is dropped unanswered, counted, and the daemon goes on", async () => {
    const root = await frontRoot(space, "main");
    const subject = `cotal.main.live.delivery.${asker.me.id}`;
    for (const reply of [
      "cotal.main.inst.x",
      `${subject}.reply`,
      `${subject}.reply.short`,
      `cotal.main.live.delivery.others.peer.reply.${randomUUID()}`,
      `${subject}.reply.${randomUUID()}.more`,
    ]) {
      expect(await raw(root, subject, reply, 1000)).toBe("silence");
    }
    root.publish(subject, "");
    await root.flush();
    expect(JSON.parse(await raw(root, subject, `${subject}.reply.${randomUUID()}`, 15_000))).toMatchObject({
      responder: "bound",
    });
  }, 30_000);
});

describe("W61.05 W61.07 W61.08 what it says of itself", () => {
  test("W61.07 by its own lease: its own is bound, not ready and absent are unbound, another's is stale, unreadable is unknown", async () => {
    const asked = async () => (await asker.liveness("delivery")).responder;
    const bound = () => until("it is bound", async () => (await asked()) === "bound", 40_000);
    // It answers from the row as it is now, before it has noticed by its own renewal that the row moved.
    const seen: string[] = [];
    // Each time the lease is taken anew, so that its next renewal is seconds away.
    await put(store, LEASE, "", { "KV-Operation": "DEL" });
    await until("it is let go", async () => (await asked()) !== "bound");
    for (const change of [row({}), row({ ready: false }), "", "{"]) {
      await bound();
      await put(store, LEASE, change, change === "" ? { "KV-Operation": "DEL" } : {});
      seen.push(await asked());
      await put(store, LEASE, "", { "KV-Operation": "DEL" });
    }
    expect(seen).toEqual(["stale", "unbound", "unbound", "unknown"]);
    await bound();
    await put(store, LEASE, row({}));
    // It lets go of what is another's: then the broker says so, and nobody else.
    await until("nobody serves", async () => {
      const grade = await asker.liveness("delivery");
      return grade.responder === "unbound" && grade.instance === undefined;
    });
    await put(store, LEASE, "", { "KV-Operation": "DEL" });
    await bound();
  }, 120_000);

  test("W61.05 W61.08 each bind is a new instance, derived from nothing: after a dropped connection, and after a restart", async () => {
    const bound = async (): Promise<string> => {
      let instance: string | undefined;
      await until(
        "it is bound",
        async () => {
          const grade = await asker.liveness("delivery").catch(() => undefined);
          instance = grade?.responder === "bound" ? grade.instance : undefined;
          return instance !== undefined;
        },
        30_000,
      );
      return instance ?? "";
    };
    const first = await bound();
    expect(await bound()).toBe(first);
    await space.broker.kill();
    await space.broker.restart();
    const second = await bound();
    await delivery.kill("SIGTERM");
    expect(await asker.liveness("delivery")).toEqual({ responder: "unbound" });
    delivery.restart();
    await delivery.ready();
    const third = await bound();
    expect(new Set([first, second, third]).size).toBe(3);
    for (const instance of [first, second, third]) expect(instance).toMatch(/^[A-Za-z0-9]{22,}$/);
  }, 120_000);
});

describe("W61.09 W61.01 how the peer grades it", () => {
  test("W61.09 a frozen daemon is unknown and never a health state; a killed one is unbound by the broker's own word", async () => {
    stopProcess(delivery.pid());
    try {
      expect(await asker.liveness("delivery")).toEqual({ responder: "unknown" });
    } finally {
      process.kill(delivery.pid(), "SIGCONT");
    }
    await until("it is bound", async () => (await asker.liveness("delivery")).responder === "bound", 30_000);
    await delivery.kill("SIGKILL");
    // The broker learns of it a moment later than we do.
    const graded = new Set<string>();
    await until("the broker says so", async () => {
      const { responder } = await asker.liveness("delivery");
      graded.add(responder);
      return responder === "unbound";
    });
    expect([...graded].filter((one) => one !== "unknown")).toEqual(["unbound"]);
    delivery.restart();
    await delivery.ready();
  }, 90_000);

  test("W61.01 W61.09 another plane is refused before anything is published; an answer of the wrong plane is unknown", async () => {
    const root = await frontRoot(space, "main");
    const published: string[] = [];
    const live = root.subscribe("cotal.main.live.manager.>", {
      callback: (_, message) => {
        published.push(message.subject);
        message.respond(JSON.stringify({ plane: "delivery", responder: "bound" }));
      },
    });
    const others = root.subscribe("cotal.main.live.auth.>", {
      callback: (_, { subject }) => void published.push(subject),
    });
    await root.flush();
    await expect(asker.liveness("auth" as "manager")).rejects.toMatchObject({ code: "bad-request" });
    expect(await asker.liveness("manager")).toEqual({ responder: "unknown" });
    await root.flush();
    expect(published.filter((subject) => subject.includes(".auth."))).toEqual([]);
    live.unsubscribe();
    others.unsubscribe();
  }, 30_000);

  test("W61.11 two daemons of a space answer as two instances, one question at a time", async () => {
    // Only who holds the lease serves: two at once are a moment of a change of hands.
    await until("it is bound", async () => (await asker.liveness("delivery")).responder === "bound", 40_000);
    const root = await frontRoot(space, "main");
    const two = root.subscribe("cotal.main.live.delivery.*.*", {
      queue: "live.delivery",
      callback: (_, message) => {
        message.respond(JSON.stringify({ plane: "delivery", responder: "bound", instance: "two" }));
      },
    });
    await root.flush();
    const instances = new Set<string>();
    for (let at = 0; at < 60; at += 1) instances.add((await asker.liveness("delivery")).instance ?? "");
    expect(instances.has("two")).toBe(true);
    expect(instances.size).toBe(2);
    two.unsubscribe();
  }, 60_000);
});
