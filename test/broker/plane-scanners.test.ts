/** The authority plane's sealed scanners over a real broker (supplement E and I): what one leaves, and what its loss is. */
import { randomBytes } from "node:crypto";
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openScanners } from "../../services/auth/plane/scanners.ts";
import { GONE, LIVE, livenessOf } from "../../services/auth/plane/liveness.ts";
import type { OpenSpace } from "../../services/auth/open-space.ts";
import type { ClaimState } from "../../services/auth/plane/claim.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { consumersOf } from "../../shared/broker/consumers.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { type Scanner, createScanner } from "../../shared/broker/scanner.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { sealed } from "../../shared/ledger/scan.ts";
import type { LedgerStore, Scan } from "../../shared/ledger/store.ts";
import { inboxPrefix, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { type ConnectionTuple, PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { eventually } from "../support/cli.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { openPlane } from "../support/open-plane.ts";
import { EVERYTHING, OWNER, SIGN_IN } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const STREAM = "KV_cotal_auth_main";
const NAME = "scan_main-ledger";

let space: TestSpace;
let store: Connection;
let nc: NatsConnection;
let ledger: LedgerStore;
beforeAll(async () => {
  space = await startSpace({ auth: "user", delivery: false });
  store = await space.openStore();
  nc = store.nc;
  ledger = brokerLedgerStore(nc, createWriter({ nc }), "main");
}, 60_000);
afterAll(() => space.stop());

/** A scanner as the plane has one: its own profile, and no second dial. */
async function opened(): Promise<{ connection: Connection; scanner: Scanner }> {
  const scope = { ...freshHolder(OWNER, "auth_ledger"), space: "main", scans: "ledger" } as const;
  const connection = await space.open(await daemonCredential(space, "ledger-scanner", "store", scope));
  return { connection, scanner: createScanner(connection, { stream: STREAM, consumer: NAME }) };
}

const scanOver = (scanner: Scanner): LedgerStore["scan"] => sealed({ auth: scanner, records: scanner }, "main");

/** Ends one connection, as an eviction does. */
async function kick({ serverId, cid }: ConnectionTuple): Promise<void> {
  const scope = { ...freshHolder(OWNER, "evictor"), space: "main", spaceAccounts: [] };
  const system = await space.connect(await daemonCredential(space, "connection-evictor", "system", scope));
  await system.request(`$SYS.REQ.SERVER.${serverId}.KICK`, JSON.stringify({ cid }));
}

/** So many rows of a fresh family, and the gate that is written after them. */
async function family(count: number): Promise<Scan> {
  const uid = drawLifecycleUid(randomBytes);
  const rows = Array.from({ length: count }, (_, at) => ledger.create("auth", `cred.${uid}.r${at}`, { at }));
  await Promise.all(rows);
  const revision = await ledger.create("auth", `gate.${uid}`, {});
  return { bucket: "auth", family: `cred.${uid}.*`, after: { key: `gate.${uid}`, revision } };
}

async function consumers() {
  const found = [];
  for await (const one of consumersOf(nc, STREAM)) found.push(one);
  return found;
}

describe("one scan", () => {
  test("PD.13 of a scan that died one consumer is left, under its one name; the next one is whole, and leaves none", async () => {
    const asked = await family(1200);
    const first = await opened();
    let seen = 0;
    const dying = first.scanner.scan(
      [kvKey("cotal_auth_main", asked.family), kvKey("cotal_auth_main", "gate.x")],
      () => {
        if ((seen += 1) === 700) void first.connection.close();
      },
    );
    expect(await failure(dying)).toMatchObject({ code: "unavailable" });
    const left = await consumers();
    expect(left.map(({ name, config }) => ({ name, ...config }))).toMatchObject([
      { name: NAME, deliver_policy: "last_per_subject", ack_policy: "none", mem_storage: true, num_replicas: 1 },
    ]);
    expect(left[0]?.config).not.toHaveProperty("durable_name");
    // A dead scanner scans nothing more.
    expect(await failure(scanOver(first.scanner)(asked, (key) => key))).toMatchObject({ code: "unavailable" });
    const { scanner } = await opened();
    const keys = await scanOver(scanner)(asked, (key) => key);
    expect([keys.length, new Set(keys).size, keys.includes(asked.after.key)]).toEqual([1200, 1200, false]);
    expect(await consumers()).toEqual([]);
  }, 60_000);

  test("PD.13 scans are serialised: of many at once each has its own family, whole, and one consumer is made after another", async () => {
    const families = await Promise.all([3, 600, 1, 40].map(family));
    const made: string[] = [];
    for (const what of ["CREATED", "DELETED"]) {
      nc.subscribe(`$JS.EVENT.ADVISORY.CONSUMER.${what}.${STREAM}.>`, {
        callback: (_, message) => void made.push(`${what} ${message.json<{ consumer: string }>().consumer}`),
      });
    }
    await nc.flush();
    const { scanner } = await opened();
    const scan = scanOver(scanner);
    const found = await Promise.all(families.map((asked) => scan(asked, (_, row) => row.kind)));
    expect(found.map((kinds) => kinds.length)).toEqual([3, 600, 1, 40]);
    await expect.poll(() => made.length, { timeout: 20_000 }).toBe(8);
    expect(made).toEqual(families.flatMap(() => [`CREATED ${NAME}`, `DELETED ${NAME}`]));
  }, 60_000);

  test("PD.08 PD.13 a replica that has not met what its asker wrote is never believed; a marker is shown as one", async () => {
    const asked = await family(2);
    const { scanner } = await opened();
    const scan = scanOver(scanner);
    const ahead = { ...asked, after: { ...asked.after, revision: asked.after.revision + 1 } };
    expect(await failure(scan(ahead, (key) => key))).toMatchObject({ code: "unavailable" });
    const deleted = headers();
    deleted.set("KV-Operation", "DEL");
    await nc.request(kvKey("cotal_auth_main", asked.family.replace("*", "r1")), "", {
      headers: deleted,
      timeout: 5000,
    });
    const revision = await ledger.cas("auth", asked.after.key, {}, asked.after.revision);
    const now = { ...asked, after: { ...asked.after, revision } };
    expect(await scan(now, (_, row) => row.kind)).toEqual(["value", "marker"]);
  }, 30_000);
});

describe("the plane that holds by them", () => {
  const planeRow = async (): Promise<PlaneRow> => {
    const entry = await leaderLast(nc, STREAM, kvKey("cotal_auth_main", "plane"));
    return PlaneRow.parse(JSON.parse(new TextDecoder().decode(entry?.data)));
  };

  type Rig = { readonly plane: OpenSpace; readonly said: ClaimState[]; readonly heldWhenLost: boolean[] };
  async function held(): Promise<Rig> {
    const said: ClaimState[] = [];
    const heldWhenLost: boolean[] = [];
    const plane: OpenSpace = await openPlane(space, {
      onPlane: (state) => {
        said.push(state);
        if (state.kind === "lost") heldWhenLost.push(plane.holdsPlane());
      },
    });
    return { plane, said, heldWhenLost };
  }

  async function expectLost({ said, heldWhenLost }: Rig): Promise<void> {
    await eventually(
      () => said.some(({ kind }) => kind === "lost"),
      (lost) => lost,
      30_000,
    );
    expect(heldWhenLost).toEqual([false]);
  }

  const heldAgain = (said: readonly ClaimState[]) =>
    eventually(
      () => said.filter(({ kind }) => kind === "held").length,
      (count) => count === 2,
      30_000,
    );

  test("PI.02 the row names both scanners; the loss of one ends the plane at once, and what it began goes on under the next", async () => {
    const rig = await held();
    try {
      const p = { owner: OWNER, actor: "scanned" };
      const { uid } = await rig.plane.authority.enrol(p, SIGN_IN);
      const row = await planeRow();
      expect(new Set([row.ledger.userNkey, row.records.userNkey]).size).toBe(2);
      // The one that no end of this test is scanning with: its loss alone is the plane's.
      await kick(row.records);
      await heldAgain(rig.said);
      expect(rig.said.map(({ kind }) => kind)).toEqual(["held", "lost", "held"]);
      expect(rig.heldWhenLost).toEqual([false]);
      const next = await planeRow();
      expect(next.generation).toBe(row.generation + 1);
      expect(next.ledger.cid).not.toBe(row.ledger.cid);
      expect(await rig.plane.authority.retire(p, uid)).toEqual({ opId: `retire-${uid}` });
    } finally {
      await rig.plane.close();
    }
    expect(await planeRow()).toMatchObject({ state: "released" });
  }, 90_000);

  test("PI.02 the claim is read again around a scan: a row that has moved ends this plane, and nothing is revoked on the scan", async () => {
    const rig = await held();
    const p = { owner: OWNER, actor: "overtaken" };
    const { uid, credentialId } = await rig.plane.authority.enrol(p, SIGN_IN);
    const row = await planeRow();
    const entry = await leaderLast(nc, STREAM, kvKey("cotal_auth_main", "plane"));
    await ledger.cas("auth", "plane", { ...row, claimId: "z".repeat(26) }, entry?.seq ?? 0);
    expect(await failure(rig.plane.authority.retire(p, uid))).toMatchObject({ code: "unavailable" });
    expect(await ledger.read("auth", `cred.${uid}.${credentialId}`)).toMatchObject({ value: { state: "active" } });
    await expectLost(rig);
    // Its scanners are closed, so that whoever comes next proves them gone, and goes on with the end.
    await heldAgain(rig.said);
    await eventually(
      async () => (await ledger.read("auth", `gate.${uid}`)) as { value?: { state?: string } },
      (gate) => gate.value?.state === "retired",
      30_000,
    );
    await rig.plane.close();
  }, 90_000);

  test("PI.01 the claim is read again before whatever only the plane does: one that has lost it without a word does nothing more", async () => {
    const rig = await held();
    const { authority } = rig.plane;
    const p = { owner: OWNER, actor: "unscanned" };
    await authority.enrol(p, SIGN_IN);
    const grant = { ...p, ...EVERYTHING, name: "unscanned", kind: "interactive" } as const;
    const before = await ledger.read("auth", `actor.${OWNER}.unscanned`);
    // Its scanners stand and its other connections too: nothing but the row tells it.
    const entry = await leaderLast(nc, STREAM, kvKey("cotal_auth_main", "plane"));
    await ledger.cas("auth", "plane", { ...(await planeRow()), claimId: "z".repeat(26) }, entry?.seq ?? 0);
    const asked = [
      authority.grant(grant),
      authority.narrow(p, { capabilities: [] }),
      authority.enrol({ owner: OWNER, actor: "newcomer" }, SIGN_IN),
    ];
    for (const one of await Promise.all(asked.map(failure))) expect(one).toMatchObject({ code: "unavailable" });
    expect(await ledger.read("auth", `actor.${OWNER}.unscanned`)).toEqual(before);
    expect(await ledger.read("auth", `actor.${OWNER}.newcomer`)).toEqual({ kind: "absent" });
    await expectLost(rig);
    await heldAgain(rig.said);
    await authority.grant(grant);
    await rig.plane.close();
  }, 90_000);
});

describe("the two of them", () => {
  const row = (revision: number) => ({ value: {} as PlaneRow, revision });

  async function both(readPlane: () => Promise<{ value: PlaneRow; revision: number }>) {
    const connections: Connection[] = [];
    const scanners = await openScanners({
      space: "main",
      open: async (scans) => {
        const scope = { ...freshHolder(OWNER, "auth_ledger"), space: "main", scans };
        const connection = await space.open(await daemonCredential(space, "ledger-scanner", "store", scope));
        connections.push(connection);
        return { connection, userKey: "U", freshMs: 1000 };
      },
      readPlane,
    });
    return { scanners, connections };
  }

  test("PI.02 nothing is scanned before the row names them; what was scanned while the row moved counts for nothing", async () => {
    const asked = await family(5);
    const inert = await both(() => Promise.resolve(row(7)));
    expect(await failure(inert.scanners.scan(asked, (key) => key))).toMatchObject({ code: "unavailable" });
    await inert.scanners.close();

    // Around the first scan it stands; during the second it moves.
    const revisions = [7, 7, 7, 8];
    const next = (await both(() => Promise.resolve(row(revisions.shift() ?? 8)))).scanners;
    next.begin(row(7));
    expect(await next.scan(asked, (key) => key)).toHaveLength(5);
    expect(await failure(next.scan(asked, (key) => key))).toMatchObject({ code: "unavailable" });
    expect(String(await next.ended)).toContain("has moved");
    // And it is over for good, whatever the row says later.
    revisions.unshift(7, 7);
    expect(await failure(next.scan(asked, (key) => key))).toMatchObject({ code: "unavailable" });
    await next.close();
  }, 30_000);

  test("PI.02 the end of either is the end of both", async () => {
    const asked = await family(1);
    const { scanners, connections } = await both(() => Promise.resolve(row(1)));
    scanners.begin(row(1));
    await connections[1]?.close();
    expect(String(await scanners.ended)).toContain("scanner of the records");
    expect(await failure(scanners.scan(asked, (key) => key))).toMatchObject({ code: "unavailable" });
    await scanners.close();
  }, 30_000);
});

describe("a connection that one repair is made with", () => {
  test("W131.12 is not dialed again once somebody has ended it: who kicks it need not kick it twice", async () => {
    const scope = { ...freshHolder(OWNER, "auth_ledger"), space: "main", scans: "records" } as const;
    const credential = await daemonCredential(space, "ledger-scanner", "store", scope);
    const statuses: string[] = [];
    const repairer = await openConnection({
      servers: [space.url],
      authenticator: { jwt: () => credential.jwt, sign: credential.sign },
      inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
      name: "repairer",
      reconnect: { kind: "single", attempts: 3 },
      onStatus: ({ type }) => statuses.push(type),
    });
    const of = { serverId: repairer.info.server_id, cid: repairer.info.client_id, userNkey: "U" };
    expect(await livenessOf(store, of)).toEqual(LIVE);
    await kick(of);
    await repairer.closed;
    expect(await livenessOf(store, of)).toEqual(GONE);
    // Nobody of its name is there, and it was never on its way back.
    const body = JSON.stringify({ limit: 1000 });
    const { data } = (await nc.request("$SYS.REQ.ACCOUNT.PING.CONNZ", body, { timeout: 5000 })).json<{
      data: { connections: { name: string }[] };
    }>();
    expect(data.connections.map(({ name }) => name)).not.toContain("repairer");
    expect(data.connections.length).toBeGreaterThan(0);
    expect(statuses).not.toContain("retrying");
    expect(statuses.filter((type) => type === "up")).toEqual([]);
  }, 30_000);
});
