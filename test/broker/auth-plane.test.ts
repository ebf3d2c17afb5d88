/** The authority over a real broker: what a crash leaves, who holds the plane, and how a lifecycle ends. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readAuthKeys } from "../../services/auth/keys.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { type ClaimState, type Holding, keepClaim } from "../../services/auth/plane/claim.ts";
import { GONE, LIVE, livenessOf, tupleOf } from "../../services/auth/plane/liveness.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import type { Connected } from "../../shared/broker/still-connected.ts";
import { verifyConsumer } from "../../shared/broker/ensure.ts";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { type ConsumerSpec, dlvConsumer, dmConsumer, roleConsumer } from "../../shared/broker/resources.ts";
import { type Death, Died, createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { ActorRow, PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { CredentialRow, GateRow, HeadRow, UidRow } from "../../shared/protocol/ledger/rows.ts";
import { eventually } from "../support/cli.ts";
import { openPlane } from "../support/open-plane.ts";
import { EVERYTHING, OWNER, SAID, SIGN_IN } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeParts } from "../support/store-plane.ts";

let space: TestSpace;
let store: Connection;
let nc: NatsConnection;
beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  store = await space.openStore();
  ({ nc } = store);
});
afterAll(() => space.stop());

const names = spaceNames("main");

/** One process's plane; it dies at the given write. */
function parts(die?: Death, over: Partial<PlaneParts> = {}): PlaneParts {
  return storeParts(space, store, die, { defaults: { ...EVERYTHING, role: "reviewer" }, ...over });
}

async function row(bucket: "auth" | "records" | "acl", key: string): Promise<unknown> {
  const place = names.bucket[bucket];
  const entry = await leaderLast(nc, bucketStream(place), kvKey(place, key));
  return entry === undefined || entry.data.length === 0 ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

async function keys(bucket: "auth" | "records", filter: string): Promise<string[]> {
  const page = await rowPage(nc, names.bucket[bucket], { filter, limit: 1000, via: "leader" });
  return page.rows.map(({ key }) => key);
}

/** Dies once at this write, of a fresh actor; `false` if the enrolment has not so many. */
async function diesAt(p: { owner: string; actor: string }, death: Death): Promise<boolean> {
  try {
    await createAuthority(parts(death)).enrol(p, SIGN_IN);
    return false;
  } catch (error) {
    if (error instanceof Died) return true;
    throw error;
  }
}

describe("W10.06 W131L.14 an enrolment that dies", () => {
  test.each(["before", "after"] as const)(
    "W10.06 W131L.14 %s any one of its writes leaves a usable credential or none, and the next try finishes it",
    async (when) => {
      let writes = 0;
      for (let at = 1; ; at += 1) {
        const p = { owner: OWNER, actor: `${when}_${at}` };
        if (!(await diesAt(p, { at, when }))) break;
        writes = at;
        await expectUsableOrNone(p);
        const done = await createAuthority(parts()).enrol(p, SIGN_IN);
        await expectWhole(p, done.uid, done.credentialId);
        const again = await createAuthority(parts()).enrol(p, SIGN_IN);
        expect(again).toMatchObject({ uid: done.uid, credentialId: done.credentialId });
      }
      // Actor, stage, uid, gate, head, three durables, read list, gate opened, root, gate touched, head stamped.
      expect(writes).toBe(13);
    },
    60_000,
  );

  /** A bearer could name only what the rows say; either all of them let it in, or none is stamped. */
  async function expectUsableOrNone(p: { owner: string; actor: string }): Promise<void> {
    const actor = ActorRow.safeParse(await row("auth", `actor.${p.owner}.${p.actor}`)).data;
    const head = HeadRow.safeParse(await row("records", `lifecycle.${p.owner}.${p.actor}`)).data;
    const uid = actor?.lifecycleUid ?? "z".repeat(26);
    const act = { ...p, lifecycleUid: uid, credentialId: rootCredentialId(uid, 1) };
    const checked = await createAuthority(parts()).check(act);
    expect(checked.ok).toBe(head?.state === "active" && head.currentCredentialId !== undefined);
    const gate = GateRow.safeParse(await row("auth", `gate.${uid}`)).data;
    expect(checked.ok && gate?.state !== "open").toBe(false);
    // Nothing half-made stands in a family that a barrier counts (W131L.10).
    for (const key of await keys("auth", `cred.${uid}.*`)) {
      expect(CredentialRow.parse(await row("auth", key)).lifecycleUid).toBe(uid);
    }
  }

  async function expectWhole(p: { owner: string; actor: string }, uid: string, credentialId: string): Promise<void> {
    expect(await row("records", `lifecycle.${p.owner}.${p.actor}`)).toMatchObject({
      state: "active",
      lifecycleUid: uid,
      currentCredentialId: credentialId,
    });
    expect(await row("auth", `gate.${uid}`)).toMatchObject({ state: "open" });
    expect(await keys("auth", `cred.${uid}.*`)).toEqual([`cred.${uid}.${credentialId}`]);
    for (const spec of [dmConsumer("main", p, uid, 1), dlvConsumer("main", p, uid), roleConsumer("main", "reviewer")]) {
      const drift = (await verifyConsumer(nc, spec)).filter(({ field }) => field !== "opt_start_seq");
      expect(drift).toEqual([]);
    }
  }

  test("W131.01 one lifecycle was reserved for each alias, however often it died", async () => {
    const reserved = await Promise.all((await keys("records", "uid.*")).map((key) => row("records", key)));
    const aliases = reserved.map((value) => UidRow.parse(value)).map(({ owner, actor }) => `${owner}.${actor}`);
    expect(aliases.filter((alias, at) => aliases.indexOf(alias) !== at)).toEqual([]);
    expect(aliases.length).toBeGreaterThan(26);
  });
});

describe("many at once", () => {
  test("twenty exchanges of one new actor in two processes are one incarnation", async () => {
    const p = { owner: OWNER, actor: "crowd" };
    const both = [createAuthority(parts()), createAuthority(parts())];
    const all = await Promise.all(Array.from({ length: 20 }, async (_, at) => both[at % 2]?.enrol(p, SIGN_IN)));
    expect(new Set(all.map((one) => `${one?.uid} ${one?.credentialId}`)).size).toBe(1);
  });
});

describe("W131.13 the end of a lifecycle", () => {
  test("W131.06 W131.13 what it left is removed by exact names before its name is granted again", async () => {
    const p = { owner: OWNER, actor: "ended" };
    const removed: string[] = [];
    let found: Connected = { kind: "some", count: 1 };
    const authority = createAuthority(
      parts(undefined, {
        connectionsOf: () => Promise.resolve(found),
        removeRemains: (who, uid) => {
          removed.push(`${who.actor} ${uid}`);
          return Promise.resolve();
        },
      }),
    );
    const { uid, credentialId } = await authority.enrol(p, SIGN_IN);
    await authority.revoke(p);
    expect(await authority.check({ ...p, lifecycleUid: uid, credentialId })).toMatchObject({ ok: false });
    const regrant = () => authority.grant({ ...p, ...EVERYTHING, name: "again", kind: "interactive" });
    expect(await failure(regrant())).toMatchObject({ code: "failed-precondition" });
    found = { kind: "none" };
    const granted = await regrant();
    expect(granted.lifecycleUid).not.toBe(uid);
    expect(removed).toEqual([`ended ${uid}`]);
    expect(await row("records", `lifecycle.${OWNER}.ended`)).toMatchObject({ state: "retired", lifecycleUid: uid });
    expect(await row("records", `frontier.${uid}`)).toMatchObject({ lifecycleUid: uid });
  });

  test("the list pages through every actor", async () => {
    const authority = createAuthority(parts());
    const seen: string[] = [];
    let cursor: number | undefined;
    do {
      const page = await authority.list({ owner: OWNER, ...(cursor === undefined ? {} : { cursor }) });
      expect(page.unreadable).toEqual([]);
      seen.push(...page.actors.map(({ actor }) => actor));
      cursor = page.cursor;
    } while (cursor !== undefined);
    expect(seen.toSorted()).toEqual(
      (await keys("auth", `actor.${OWNER}.*`)).map((key) => key.split(".")[2] ?? "").toSorted(),
    );
  });
});

// Two of them have a space of their own, and wait together for proofs that nobody is left.
describe("W131.18 the service as a whole ends a lifecycle", () => {
  test.concurrent("W131.18 W8.08 its durables and read list are gone, and its successor's begin after the gap", async () => {
    const own = await startSpace({ auth: "user" });
    const store = await own.store();
    const opened = await openPlane(own);
    const { authority } = opened;
    try {
      const p = { owner: OWNER, actor: "renewed" };
      const { uid } = await authority.enrol(p, SIGN_IN);
      const missing = (of: string) => [dmConsumer("main", p, of, 1), dlvConsumer("main", p, of)];
      expect(await absent(store, missing(uid))).toEqual([false, false]);
      await authority.revoke(p);
      await store.request(spaceSubjects("main").inst(p, { owner: OWNER, actor: "sender" }), "in the gap");
      await authority.grant({ ...p, ...EVERYTHING, name: "renewed", kind: "interactive" });
      expect(await absent(store, missing(uid))).toEqual([true, true]);
      const acl = await leaderLast(
        store,
        bucketStream(names.bucket.acl),
        kvKey(names.bucket.acl, `${OWNER}.renewed.${uid}`),
      );
      expect(acl?.data.length).toBe(0);
      const next = await authority.enrol(p, SIGN_IN);
      expect(next.uid).not.toBe(uid);
      const { num_pending: pending } = (
        await store.request(jsApi.consumerInfo(names.dm, dmDurable(p, next.uid)))
      ).json<{ num_pending: number }>();
      expect(pending).toBe(0);
    } finally {
      await opened.close();
      await own.stop();
    }
  }, 30_000);

  test.concurrent("W131L.01 what removes a lifecycle's remains has its row, and is one credential however often it works", async () => {
    const own = await startSpace({ auth: "user" });
    const store = await own.store();
    const opened = await openPlane(own);
    const { authority } = opened;
    const { ledgerUid } = readAuthKeys(join(own.state, "spaces", "{space}", "auth"), "main");
    const rows = async () =>
      (await rowPage(store, names.bucket.auth, { filter: `cred.${ledgerUid}.*`, limit: 100, via: "leader" })).rows;
    try {
      const p = { owner: OWNER, actor: "cleaned" };
      const before = await rows();
      for (let round = 0; round < 2; round += 1) {
        await authority.enrol(p, SIGN_IN);
        await authority.revoke(p);
        await authority.grant({ ...p, ...EVERYTHING, name: "cleaned", kind: "interactive" });
        expect(await rows()).toHaveLength(before.length + 1);
      }
      for (const { data } of await rows()) {
        const credential = CredentialRow.parse(JSON.parse(new TextDecoder().decode(data)));
        expect(credential).toMatchObject({ lifecycleUid: ledgerUid, state: "active" });
      }
    } finally {
      await opened.close();
      await own.stop();
    }
  }, 40_000);

  test("W131.18 §8 a role that is granted to somebody who is there has its queue before the row names it", async () => {
    const p = { owner: OWNER, actor: "promoted" };
    const authority = createAuthority(parts(undefined, { defaults: EVERYTHING }));
    await authority.enrol(p, SIGN_IN);
    expect(await absent(nc, [roleConsumer("main", "auditor")])).toEqual([true]);
    await authority.grant({ ...p, ...EVERYTHING, name: "promoted", kind: "interactive", role: "auditor" });
    expect(await absent(nc, [roleConsumer("main", "auditor")])).toEqual([false]);
  });

  const absent = (store: NatsConnection, specs: readonly ConsumerSpec[]): Promise<boolean[]> =>
    Promise.all(
      specs.map(async (spec) => (await verifyConsumer(store, spec)).some(({ field }) => field === "consumer")),
    );
});

describe("one plane for a space (supplement I)", () => {
  const ledger = () => brokerLedgerStore(nc, createWriter({ nc }), "main");
  const planeRow = async () => PlaneRow.parse(await row("auth", "plane"));

  /** A plane of its own: what it said, and its connection, which a test can cut. */
  function start() {
    const said: ClaimState["kind"][] = [];
    const claimId = drawLifecycleUid(randomBytes);
    let serving = 0;
    let opened = 0;
    let cut = (): Promise<void> => Promise.resolve();
    const hold = async (): Promise<Holding> => {
      const both = [await looker(), await looker()] as const;
      opened += 1;
      cut = () => both[1].close();
      const [ledger, records] = both.map((store) => tupleOf(store.nc, "U"));
      if (ledger === undefined || records === undefined) throw new Error("no INFO");
      return {
        ledger,
        records,
        begin: () => undefined,
        freshMs: 3_600_000,
        ended: Promise.race(both.map((store) => store.closed)),
        close: async () => void (await Promise.all(both.map((store) => store.close()))),
      };
    };
    const claim = keepClaim({
      claimId,
      ledger: ledger(),
      livenessOf: (tuple) => livenessOf(store, tuple),
      hold,
      onState: ({ kind }) => said.push(kind),
      whileHeld: () => {
        serving += 1;
        return Promise.resolve({
          ended: new Promise(() => undefined),
          stop: () => {
            serving -= 1;
            return Promise.resolve();
          },
        });
      },
      now: Date.now,
      retryMs: 50,
    });
    return { claim, claimId, said, cut: () => cut(), serving: () => serving, opened: () => opened };
  }

  async function looker() {
    const store = await space.openStore();
    return store;
  }

  const holds = (one: ReturnType<typeof start>) =>
    eventually(
      () => one.claim.held(),
      (held) => held,
      10_000,
    );

  test("the first takes it, a second waits quietly and takes over when it is released", async () => {
    const first = start();
    expect(await holds(first)).toBe(true);
    expect(await planeRow()).toMatchObject({ state: "held", claimId: first.claimId });
    const second = start();
    await eventually(
      () => second.said.length,
      (count) => count > 0,
      5000,
    );
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(second.claim.held()).toBe(false);
    // It told once, and opened nothing to wait.
    expect(second.said).toEqual(["live-peer"]);
    expect(second.opened()).toBe(0);
    expect([first.serving(), second.serving()]).toEqual([1, 0]);
    const { generation } = await planeRow();
    await first.claim.stop();
    expect(first.serving()).toBe(0);
    expect(await holds(second)).toBe(true);
    expect(await planeRow()).toMatchObject({ claimId: second.claimId, generation: generation + 1 });
    await second.claim.stop();
    expect(await planeRow()).toMatchObject({ state: "released" });
  }, 30_000);

  test("a plane one of whose two connections fell is lost at once and claimed anew", async () => {
    const one = start();
    expect(await holds(one)).toBe(true);
    const before = await planeRow();
    await one.cut();
    await eventually(
      () => one.said.filter((kind) => kind === "held").length,
      (count) => count === 2,
      10_000,
    );
    expect(one.said).toEqual(["held", "lost", "held"]);
    expect((await planeRow()).generation).toBeGreaterThan(before.generation);
    await one.claim.stop();
  }, 30_000);

  test("of many that start at once one holds it", async () => {
    const many = Array.from({ length: 6 }, start);
    await eventually(
      () => many.filter(({ claim }) => claim.held()).length,
      (count) => count > 0,
      10_000,
    );
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(many.filter(({ claim }) => claim.held())).toHaveLength(1);
    await Promise.all(many.map(({ claim }) => claim.stop()));
  }, 30_000);

  test("a holder whose death nobody can prove keeps the claim", async () => {
    const said: ClaimState["kind"][] = [];
    const one = start();
    expect(await holds(one)).toBe(true);
    const claim = keepClaim({
      claimId: drawLifecycleUid(randomBytes),
      ledger: ledger(),
      livenessOf: () => Promise.resolve(SAID.unknown),
      hold: () => Promise.reject(new Error("it must not come to this")),
      onState: ({ kind }) => said.push(kind),
      whileHeld: () => Promise.reject(new Error("it must not come to this")),
      now: Date.now,
      retryMs: 20,
    });
    await new Promise((resolve) => setTimeout(resolve, 200));
    await claim.stop();
    expect(said).toEqual(["inconclusive"]);
    await one.claim.stop();
  }, 30_000);

  test("a connection is live, then gone; one of a server that runs no more is gone", async () => {
    const watched = await looker();
    const tuple = tupleOf(watched.nc, "U");
    if (tuple === undefined) throw new Error("no INFO");
    expect(await livenessOf(store, tuple)).toEqual(LIVE);
    await watched.close();
    await eventually(
      () => livenessOf(store, tuple),
      ({ kind }) => kind === "gone",
      5000,
    );
    expect(await livenessOf(store, { ...tuple, serverId: `N${"A".repeat(55)}` })).toEqual(GONE);
  });
});
