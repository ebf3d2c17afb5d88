/**
 * Pruning of native-key evidence over a real broker: what leaves, what stays, and what a row that is no
 * evidence does to a start and to a running plane.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { MARKER_SECONDS, evidenceIn } from "../../services/auth/plane/evidence.ts";
import {
  BATCH_ROWS,
  CHECK_ROWS,
  type Evidence,
  type PruneEvent,
  type PruneParts,
  TOLERANCE_SECONDS,
  checkEvidence,
  keepPruning,
} from "../../services/auth/plane/prune-natkeys.ts";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { readRow } from "../../shared/ledger/store.ts";
import { kvKey, sys } from "../../shared/protocol/base/broker-subjects.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { encodeToken } from "../../shared/protocol/base/principals.ts";
import { type NatkeyRow, actorKey } from "../../shared/protocol/ledger/actor-rows.ts";
import { GateRow } from "../../shared/protocol/ledger/rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import { beginPlane, openPlane } from "../support/open-plane.ts";
import { OWNER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const { auth } = spaceNames("main").bucket;
const stream = bucketStream(auth);
const NOW = 1_900_000_000;

const row = (over: Partial<NatkeyRow> = {}): NatkeyRow => ({
  v: 1,
  space: "main",
  owner: OWNER,
  actor: "alice",
  lifecycleUid: "a".repeat(26),
  credentialId: `r_${"b".repeat(26)}`,
  view: null,
  connId: `${"a".repeat(26)}_${"n".repeat(26)}`,
  iat: NOW - 900,
  exp: NOW,
  ...over,
});

const newUserKey = (): string => `U${encodeToken(randomBytes(35), 55).toUpperCase()}`;
const bytes = (value: unknown): Uint8Array =>
  new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

describe("over the store of one space", () => {
  let space: TestSpace;
  let nc: NatsConnection;
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    nc = await space.store();
  });
  afterAll(() => space.stop());
  beforeEach(async () => {
    // Each test has the family for itself: what the one before left is marked, and the marks leave at once.
    for (const { key, seq } of await rows()) {
      await createWriter({ nc }).cas(stream, kvKey(auth, key), new Uint8Array(), seq, {
        headers: { [Header.KvOperation]: "PURGE", [Header.Ttl]: "1" },
      });
    }
  });
  const stops: (() => Promise<void>)[] = [];
  afterEach(async () => {
    await Promise.all(stops.splice(0).map((stop) => stop()));
  });

  const evidence = (): Evidence => evidenceIn(nc, createWriter({ nc }), "main");

  async function put(value: unknown, userKey = newUserKey()): Promise<string> {
    await createWriter({ nc }).create(stream, kvKey(auth, actorKey.natkey(userKey)), bytes(value));
    return userKey;
  }

  /** What stands as a value, in the order of its writing. */
  async function rows(): Promise<{ key: string; seq: number }[]> {
    const all: { key: string; seq: number }[] = [];
    let cursor: number | undefined;
    do {
      const request = { filter: actorKey.allNatkeys, limit: 1000, via: "leader" } as const;
      const page = await rowPage(nc, auth, { ...request, ...(cursor === undefined ? {} : { cursor }) });
      all.push(...page.rows.filter(({ kind }) => kind === "value"));
      ({ cursor } = page);
    } while (cursor !== undefined);
    return all;
  }

  const keysOf = (userKeys: readonly string[]): string[] => userKeys.map(actorKey.natkey).toSorted();
  const keysThere = async (): Promise<string[]> => (await rows()).map(({ key }) => key).toSorted();

  function prune(over: Partial<PruneParts> = {}) {
    const events: PruneEvent[] = [];
    const bad: CotalError[] = [];
    const pruning = keepPruning({
      space: "main",
      evidence: evidence(),
      holdsPlane: () => true,
      onBadRow: (cause) => bad.push(cause),
      onEvent: (event) => events.push(event),
      now: () => NOW * 1000,
      random: () => new Uint8Array(1),
      ...over,
    });
    stops.push(pruning.stop);
    const walks = () => events.filter(({ kind }) => kind === "walked").length;
    return {
      events,
      bad,
      stop: pruning.stop,
      /** Waits until all rows were met once more. */
      walked: async (): Promise<void> => {
        const before = walks();
        await expect.poll(walks, { timeout: 20_000 }).toBeGreaterThan(before);
      },
      sum: (field: "seen" | "pruned") =>
        events.reduce((sum, event) => sum + (event.kind === "batch" ? event[field] : 0), 0),
    };
  }

  test("W131L.12 a row leaves once its exp and the clock tolerance are over, and not a second before", async () => {
    const over = await put(row({ exp: NOW - TOLERANCE_SECONDS }));
    const longOver = await put(row({ exp: NOW - 3600 }));
    const within = await put(row({ exp: NOW - TOLERANCE_SECONDS + 1 }));
    const current = await put(row({ exp: NOW + 900 }));
    const { walked, events, sum } = prune();
    await walked();
    expect(await keysThere()).toEqual(keysOf([within, current]));
    expect([sum("seen"), sum("pruned")]).toEqual([4, 2]);
    expect(events.at(-1)).toEqual({ kind: "walked", service: 0, oldestExpiredSeconds: 3600 });
    for (const userKey of [over, longOver]) {
      const left = await leaderLast(nc, stream, kvKey(auth, actorKey.natkey(userKey)));
      expect(left?.data).toHaveLength(0);
      expect(left?.headers?.get(Header.KvOperation)).toBe("PURGE");
      // The marker leaves too, by itself.
      expect(left?.headers?.get(Header.Ttl)).toBe(String(MARKER_SECONDS));
    }
  });

  test("W131L.12 the walk comes again: what has ended since leaves then", async () => {
    let now = NOW * 1000;
    const userKey = await put(row({ exp: NOW + 10 }));
    const { walked } = prune({ now: () => now, everyMs: 50 });
    await walked();
    expect(await keysThere()).toEqual(keysOf([userKey]));
    now += (10 + TOLERANCE_SECONDS) * 1000;
    await walked();
    await walked();
    expect(await keysThere()).toEqual([]);
  });

  test("W131L.12 a purge is pinned to what was read: a row that was written meanwhile stays", async () => {
    const userKey = await put(row({ exp: NOW - 3600 }));
    const other = await put(row({ exp: NOW - 3600 }));
    const real = evidence();
    const { walked, sum, bad } = prune({
      evidence: {
        ...real,
        purge: async (key, seq) => {
          if (key === userKey) {
            const subject = kvKey(auth, actorKey.natkey(userKey));
            await createWriter({ nc }).cas(stream, subject, bytes(row({ exp: NOW - 3599 })), seq);
          }
          return real.purge(key, seq);
        },
      },
    });
    await walked();
    expect(await keysThere()).toEqual(keysOf([userKey]));
    expect([sum("pruned"), bad]).toEqual([1, []]);
    expect(await leaderLast(nc, stream, kvKey(auth, actorKey.natkey(other)))).toMatchObject({ data: new Uint8Array() });
  });

  test("W131L.12 evidence of a service stays whatever its exp says, and is counted apart", async () => {
    const userKey = newUserKey();
    const service = {
      witness: { registrationRevision: 3 },
      credentialId: "ep_1",
      connection: { userNkey: userKey, serverId: `N${"A".repeat(55)}`, clientId: 7 },
    };
    await put({ ...row({ exp: NOW - 9999 }), service }, userKey);
    await put(row({ exp: NOW - 100 }));
    const { walked, events, bad } = prune();
    await walked();
    expect(await keysThere()).toEqual(keysOf([userKey]));
    expect(events.at(-1)).toEqual({ kind: "walked", service: 1, oldestExpiredSeconds: 100 });
    expect(bad).toEqual([]);
    await checkEvidence({ space: "main", evidence: evidence() });
  });

  test.each<[string, () => { userKey?: string; value: unknown }]>([
    ["no JSON", () => ({ value: "{" })],
    ["a field too many", () => ({ value: { ...row(), more: 1 } })],
    ["no exp", () => ({ value: { ...row(), exp: undefined } })],
    ["another space", () => ({ value: row({ space: "other" }) })],
    ["a key of nobody", () => ({ userKey: "someone", value: row() })],
    [
      "a service with another connection",
      () => ({
        value: {
          ...row({ exp: 1 }),
          service: {
            witness: {},
            credentialId: "x",
            connection: { userNkey: newUserKey(), serverId: `N${"A".repeat(55)}`, clientId: 7 },
          },
        },
      }),
    ],
  ])("W131L.12 a row with %s stops the walk, is named, and nothing in its batch leaves", async (_, make) => {
    const { userKey, value } = make();
    const before = await put(row({ exp: 1 }));
    const badKey = await put(value, userKey);
    const after = await put(row({ exp: 1 }));
    const { bad } = prune({ everyMs: 20 });
    await expect.poll(() => bad.length, { timeout: 10_000 }).toBe(1);
    expect(bad[0]).toMatchObject({ code: "failed-precondition", next: expect.any(String) as string });
    expect(bad[0]?.message).toContain(actorKey.natkey(badKey));
    await new Promise((resolve) => setTimeout(resolve, 100));
    // It walks no more.
    expect(bad).toHaveLength(1);
    expect(await keysThere()).toEqual(keysOf([before, badKey, after]));
    const refused = await failure(checkEvidence({ space: "main", evidence: evidence() }));
    expect(refused).toMatchObject({ code: "failed-precondition", message: bad[0]?.message });
  });

  test("W131L.12 who does not hold the plane's claim removes nothing; who loses it stops at the next batch", async () => {
    const userKey = await put(row({ exp: 1 }));
    const quiet = prune({ holdsPlane: () => false, everyMs: 20 });
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(quiet.events).toEqual([]);
    expect(await keysThere()).toEqual(keysOf([userKey]));
    await fill(BATCH_ROWS + 10, 1);
    let holds = true;
    const real = evidence();
    const { events, sum } = prune({
      holdsPlane: () => holds,
      evidence: {
        ...real,
        page: async (cursor, limit) => {
          const page = await real.page(cursor, limit);
          holds = false;
          return page;
        },
      },
    });
    await expect.poll(() => events.length, { timeout: 10_000 }).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(events).toHaveLength(1);
    expect(sum("pruned")).toBeLessThanOrEqual(BATCH_ROWS);
    expect(await keysThere()).toHaveLength(BATCH_ROWS + 11 - sum("pruned"));
  });

  test("W131L.12 5,000 rows: no read or purge beyond a batch, pauses in between, and all of them leave", async () => {
    await fill(5000, 1);
    const real = evidence();
    const limits: number[] = [];
    let open = 0;
    let mostOpen = 0;
    const { walked, sum } = prune({
      evidence: {
        page: (cursor, limit) => {
          limits.push(limit);
          return real.page(cursor, limit);
        },
        purge: async (key, seq) => {
          mostOpen = Math.max(mostOpen, (open += 1));
          await real.purge(key, seq);
          open -= 1;
        },
      },
    });
    const began = performance.now();
    await walked();
    const took = performance.now() - began;
    expect(await keysThere()).toEqual([]);
    expect([sum("seen"), sum("pruned")]).toEqual([5000, 5000]);
    expect(new Set(limits)).toEqual(new Set([BATCH_ROWS]));
    expect(mostOpen).toBeLessThanOrEqual(BATCH_ROWS);
    // A pause after each batch but the last.
    expect(took).toBeGreaterThan(Math.floor(5000 / BATCH_ROWS) * 90);
  }, 60_000);

  test("W131L.12 the look at the start is bounded: a bad row behind its end is the walk's to meet", async () => {
    await fill(CHECK_ROWS, NOW + 900);
    const badKey = await put("{");
    const real = evidence();
    let read = 0;
    const counted: Evidence = {
      ...real,
      page: async (cursor, limit) => {
        const page = await real.page(cursor, limit);
        read += page.rows.length;
        return page;
      },
    };
    await checkEvidence({ space: "main", evidence: counted });
    expect(read).toBeLessThanOrEqual(CHECK_ROWS);
    const { bad } = prune();
    await expect.poll(() => bad.length, { timeout: 20_000 }).toBe(1);
    expect(bad[0]?.message).toContain(badKey);
  }, 60_000);

  test("a broker that does not answer ends a walk, not the pruning", async () => {
    await put(row({ exp: 1 }));
    const real = evidence();
    let fails = 1;
    const { events, walked } = prune({
      everyMs: 20,
      evidence: {
        ...real,
        page: (cursor, limit) => {
          fails -= 1;
          return fails < 0 ? real.page(cursor, limit) : Promise.reject(new Error("away"));
        },
      },
    });
    await walked();
    expect(
      events
        .map(({ kind }) => kind)
        .filter((kind) => kind !== "batch")
        .slice(0, 2),
    ).toEqual(["failed", "walked"]);
    expect(await keysThere()).toEqual([]);
  });

  test("W131L.12 no row of the ledger has a life of its own, and a marker on one that is never deleted is corruption", async () => {
    const ledger = brokerLedgerStore(nc, createWriter({ nc }), "main");
    const writer = createWriter({ nc });
    const subject = kvKey(auth, "gate.mortal");
    const value = bytes({ state: "open", generation: 1 });
    const seq = await writer.create(stream, subject, value, { headers: { [Header.Ttl]: "3600" } });
    expect(await failure(readRow(ledger, "auth", "gate.mortal", GateRow))).toMatchObject({
      code: "failed-precondition",
    });
    const again = await writer.cas(stream, subject, value, seq);
    expect(await readRow(ledger, "auth", "gate.mortal", GateRow)).toMatchObject({ value: { state: "open" } });
    await writer.cas(stream, subject, new Uint8Array(), again, {
      headers: { [Header.KvOperation]: "PURGE", [Header.Ttl]: "3600" },
    });
    expect(await failure(readRow(ledger, "auth", "gate.mortal", GateRow))).toMatchObject({
      code: "failed-precondition",
    });
  });

  /** Many rows at once. */
  async function fill(count: number, exp: number): Promise<void> {
    const writer = createWriter({ nc });
    const value = bytes(row({ exp }));
    for (let done = 0; done < count; done += 500) {
      const some = Array.from({ length: Math.min(500, count - done) }, newUserKey);
      await Promise.all(some.map((key) => writer.create(stream, kvKey(auth, actorKey.natkey(key)), value)));
    }
  }
});

describe("the service", () => {
  let space: TestSpace;
  let nc: NatsConnection;
  let service: AuthService | undefined;
  beforeEach(async () => {
    space = await startSpace({ auth: "user" });
    nc = await space.store();
  }, 30_000);
  afterEach(async () => {
    await service?.stop();
    service = undefined;
    await space.stop();
  });

  const write = (key: string, value: unknown) =>
    createWriter({ nc }).create(stream, kvKey(auth, actorKey.natkey(key)), bytes(value));

  test("W131L.12 the holder prunes by itself, from the moment it holds the claim", async () => {
    const [over, current] = [newUserKey(), newUserKey()];
    await write(over, row({ exp: Math.floor(Date.now() / 1000) - 3600 }));
    await write(current, row({ exp: Math.floor(Date.now() / 1000) + 3600 }));
    const events: PruneEvent[] = [];
    const opened = await openPlane(space, {
      evidence: { onPrune: (event) => events.push(event), onFence: () => undefined },
    });
    try {
      await expect.poll(() => events.some(({ kind }) => kind === "walked"), { timeout: 10_000 }).toBe(true);
      expect(events[0]).toEqual({ kind: "batch", seen: 2, pruned: 1 });
      const left = await leaderLast(nc, stream, kvKey(auth, actorKey.natkey(current)));
      expect(left?.data.length).toBeGreaterThan(0);
    } finally {
      await opened.close();
    }
    expect(events.at(-1)).toEqual({ kind: "stopped" });
  }, 30_000);

  test("W131L.12 a row that does not parse refuses the start, and nothing of the space is left open", async () => {
    await write(newUserKey(), "no evidence");
    const error = await failure(beginPlane(space));
    expect(error).toMatchObject({ code: "failed-precondition" });
    expect(error.message).toContain("natkey.");
    await expect.poll(() => connectionsOfService(), { timeout: 5000 }).toEqual([]);
  }, 30_000);

  async function connectionsOfService(): Promise<string[]> {
    const answer = await nc.request(sys.ownConnections, "{}");
    const { data } = answer.json<{ data: { connections: { name: string }[] } }>();
    return data.connections.map(({ name }) => name).filter((name) => name.startsWith("auth "));
  }

  test("W131L.12 a running plane that reaches one is fenced: it lets go, says why, and lets the enrolled in", async () => {
    service = await startAuthService(space);
    const comesIn = (actor: string) =>
      eventually(
        () => service?.signIn(actor).catch(() => undefined),
        (answer) => answer !== undefined,
        20_000,
      );
    expect(await comesIn("alice")).toMatchObject({ actor: "alice" });
    await service.kill("SIGTERM");
    // Behind what the look at the start may read: the walk is the first to meet it.
    const current = row({ exp: Math.floor(Date.now() / 1000) + 3600 });
    const keys = Array.from({ length: CHECK_ROWS }, newUserKey);
    for (let at = 0; at < keys.length; at += 512) {
      await Promise.all(keys.slice(at, at + 512).map((key) => write(key, current)));
    }
    const badKey = newUserKey();
    await write(badKey, "no evidence");
    await service.restart();
    await expect
      .poll(() => service?.log(), { timeout: 20_000 })
      .toContain("THE AUTHORITY PLANE OF THE SPACE IS FENCED");
    expect(service.log()).toContain(actorKey.natkey(badKey));
    const plane = async () =>
      JSON.parse(new TextDecoder().decode((await leaderLast(nc, stream, kvKey(auth, "plane")))?.data)) as unknown;
    await expect.poll(plane, { timeout: 10_000 }).toMatchObject({ state: "released" });
    expect(await comesIn("alice")).toMatchObject({ actor: "alice" });
    const newcomer: unknown = await service.signIn("newcomer").catch((thrown: unknown) => thrown);
    expect(newcomer).toMatchObject({ status: 503, body: { code: "unavailable" } });
    // It does not claim again by itself.
    await new Promise((resolve) => setTimeout(resolve, 3000));
    expect(await plane()).toMatchObject({ state: "released" });
  }, 60_000);
});
