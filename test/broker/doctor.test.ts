/** What the check of a space finds, each fault made on a real broker (A.08). */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SpaceContext } from "../../services/provisioner/context.ts";
import { check as checkSpace } from "../../services/provisioner/check/check.ts";
import { disk } from "../../services/provisioner/check/disk.ts";
import { lifecycles } from "../../services/provisioner/check/lifecycles.ts";
import { queues } from "../../services/provisioner/check/queues.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { CheckAnswer, type Finding } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { api, put } from "../support/raw-jetstream.ts";
import { type Sessions, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const MINUTE = 60_000;
let space: TestSpace;
let store: NatsConnection;
let sessions: Sessions;
let delivery: DeliveryService | undefined;
let context: SpaceContext;

beforeAll(async () => {
  space = await startSpace({ delivery: false });
  store = await space.store();
  sessions = sessionsOf(space);
  context = {
    store,
    space: "main",
    names: spaceNames("main"),
    authority: {
      gate: (uid: string) => leaderLast(store, "KV_cotal_auth_main", `$KV.cotal_auth_main.gate.${uid}`),
    },
  } as unknown as SpaceContext;
}, 240_000);
afterAll(async () => {
  await sessions?.closeAll();
  await delivery?.kill("SIGTERM");
  await space?.stop();
});

/** The stored gates, as if this one had been taken away: nobody who may do that is left in a space. */
const lastButOf = (missing: string) => async (uid: string) =>
  uid === missing ? undefined : await context.authority?.gate(uid);

const check = async (): Promise<readonly Finding[]> =>
  CheckAnswer.parse(await space.call("check", {}, { deadlineMs: 30_000 })).findings;
const all = { subscribe: [">"], publish: [">"] };

describe("A.08 the check of a space", () => {
  test("finds a member group that nobody writes, and no longer once the delivery service holds it", async () => {
    expect(await check()).toMatchObject([
      { check: "member group", level: "error", next: expect.stringContaining("delivery service") as unknown },
    ]);
    delivery = startDeliveryService(space);
    await delivery.ready();
    const found = async () => {
      const findings = await check();
      return findings.length === 0 || JSON.stringify(findings);
    };
    await until("nothing is found", found, 60_000);
  }, 120_000);

  test("finds a durable that is missing and one that was changed, and not one that begins elsewhere", async () => {
    const one = await space.mint({ actor: "missing", ...all });
    const other = await space.mint({ actor: "changed", ...all });
    const name = (kind: string, { view: { principal, uid } }: typeof one): string =>
      `${kind}_${principal.owner}-${principal.actor}-${uid}`;
    await api(store, `CONSUMER.DELETE.DM_main.${name("dm", one)}`);
    const info = await api(store, `CONSUMER.INFO.DLV_main.${name("dlv", other)}`);
    const config = { ...(info["config"] as object), max_ack_pending: 7 };
    await api(store, `CONSUMER.CREATE.DLV_main.${name("dlv", other)}`, { stream_name: "DLV_main", config });
    const found = await lifecycles(context, Date.now());
    expect(found.map(({ check: part, message }) => [part, message])).toEqual([
      ["durable", expect.stringContaining(`no ${name("dm", one)}`)],
      ["durable", expect.stringContaining("max_ack_pending is 7, and 256 is needed")],
    ]);
    const advice = async (signedIn: boolean): Promise<string[]> => {
      const findings = await lifecycles(signedIn ? { ...context, authority: undefined } : context, Date.now());
      return findings.map(({ next }) => next.replace(/u_[a-z2-7]+\./, "").replace(/(?:missing|changed)/, "WHO"));
    };
    // Each names a command that there is in such a space.
    expect(new Set(await advice(false))).toEqual(new Set(["end it and mint it again: cotal deprovision WHO"]));
    expect(new Set(await advice(true))).toEqual(
      new Set(["end it and grant it again: cotal actor retire WHO, then cotal actor grant"]),
    );
    await api(store, `CONSUMER.CREATE.DLV_main.${name("dlv", other)}`, {
      stream_name: "DLV_main",
      config: info["config"] as object,
    });
    await api(store, `STREAM.PURGE.KV_cotal_acl_main`, {
      filter: `$KV.cotal_acl_main.${one.view.principal.owner}.missing.>`,
    });
  });

  test("finds a gate that has been frozen for longer than an operation takes", async () => {
    const { view } = await space.mint({ actor: "frozen", ...all });
    const gate = `$KV.cotal_auth_main.gate.${view.uid}`;
    const frozen = { state: "frozen", generation: 1, op: { opId: "op-7", kind: "retirement" } };
    await put(store, gate, JSON.stringify(frozen));
    expect(await lifecycles(context, Date.now())).toEqual([]);
    expect(await lifecycles(context, Date.now() + 2 * MINUTE)).toMatchObject([
      {
        check: "frozen gate",
        message: expect.stringContaining("retirement op-7") as unknown,
        next: expect.stringContaining("cotal deprovision") as unknown,
      },
    ]);
    await put(store, gate, JSON.stringify({ state: "open", generation: 1 }));
    expect(await lifecycles(context, Date.now() + 2 * MINUTE)).toEqual([]);
  });

  test("finds a read list whose gate is not there", async () => {
    const { view } = await space.mint({ actor: "gateless", ...all });
    const gone = { ...context, authority: { gate: lastButOf(view.uid) } } as unknown as SpaceContext;
    expect(await lifecycles(gone, Date.now())).toMatchObject([
      { check: "gate", level: "error", message: expect.stringContaining("gateless") as unknown },
    ]);
    expect(await lifecycles(context, Date.now())).toEqual([]);
  });

  test("finds a durable whose holder acknowledges nothing, with what waits behind it", async () => {
    const from = await sessions.minted({ actor: "speaker", ...all });
    const { view } = await space.mint({ actor: "stuck", ...all });
    const { owner, actor } = view.principal;
    await Promise.all(Array.from({ length: 257 }, (_, n) => from.dm(`${owner}.${actor}`, `dm ${n}`)));
    const durable = `dm_${owner}-${actor}-${view.uid}`;
    const pull = () =>
      store.request(`$JS.API.CONSUMER.MSG.NEXT.DM_main.${durable}`, JSON.stringify({ batch: 1 }), {
        timeout: 20_000,
        // What is pulled keeps its own subject.
        noMux: true,
      });
    // A member's durable has room for 64 pulls that stand.
    for (let round = 0; round < 16; round += 1) await Promise.all(Array.from({ length: 16 }, pull));
    expect(await lifecycles(context, Date.now())).toMatchObject([
      { check: "stuck durable", level: "warning", message: expect.stringContaining("256 messages out") as unknown },
    ]);
    await api(store, "STREAM.PURGE.DM_main");
  }, 60_000);

  test("finds requests to a role that nobody serves, once they have waited", async () => {
    await space.mint({ actor: "holder", ...all, role: "work" });
    const from = await sessions.minted({ actor: "asker", ...all });
    await from.ask("work", "please");
    expect(await queues(context, Date.now() + MINUTE)).toEqual([]);
    expect(await queues(context, Date.now() + 20 * MINUTE)).toMatchObject([
      {
        check: "role queue",
        level: "warning",
        message: expect.stringContaining("1 requests wait in svc_work") as unknown,
      },
    ]);
    await api(store, "STREAM.PURGE.TASK_main");
    expect(await queues(context, Date.now() + 20 * MINUTE)).toEqual([]);
  });

  test("finds a share of the disk that is filling, and one that is full", async () => {
    expect(await disk(context)).toEqual([]);
    const used = Number((await api(store, "INFO"))["storage"]);
    const limit = async (bytes: number): Promise<void> => {
      const size = ["--disk-bytes", String(Math.floor(bytes))];
      await space.trust("space", "--space", "main", "--server", space.url, ...size);
    };
    await limit(used / 0.85);
    expect(await disk(context)).toMatchObject([{ check: "disk", level: "warning" }]);
    await limit(used / 0.99);
    expect(await disk(context)).toMatchObject([{ check: "disk", level: "error" }]);
  });

  test("A.08 finds clocks of broker and provisioner that are minutes apart, whichever is ahead", async () => {
    const clocks = async (aheadMs: number): Promise<readonly Finding[]> => {
      const settings = { replicas: 1 } as SpaceContext["settings"];
      const { findings } = await checkSpace({ ...context, settings, now: () => Date.now() + aheadMs });
      return findings.filter(({ check: part }) => part === "clock");
    };
    expect(await clocks(0)).toEqual([]);
    for (const ahead of [3 * MINUTE, -3 * MINUTE]) {
      expect(await clocks(ahead)).toMatchObject([
        { level: "warning", message: expect.stringContaining("differ by") as unknown },
      ]);
    }
  });
});
