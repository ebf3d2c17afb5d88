/**
 * The auth service is really killed: with SIGKILL, after each durable write of an end and of a takeover, one after another,
 * until one run of the operation has no such write left. Each time what is stored is contained; the service comes back, and
 * the operation goes on under its id. And it is stopped where it stands, with a gate frozen.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { type Principal, principal } from "../../shared/protocol/base/principals.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { CredentialRow, GateRow, HeadRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeParts } from "../support/store-plane.ts";
import { expectWholeLedger } from "../support/whole-ledger.ts";

/** What an operation leaves behind: rows of the ledger and of read lists, and durables made and removed. */
const DURABLE = String.raw`^\$KV\.cotal_(auth|records|acl)_|^\$JS\.API\.CONSUMER\.(CREATE|DELETE)\.(DM|DLV)_`;
const HELD = "this process holds the authority plane";
const WAIT = { timeout: 60_000 } as const;

let folder: string;
let space: TestSpace;
let nc: NatsConnection;
let ledger: LedgerStore;
let auth: AuthService;
/** Everything in the auth bucket before this sequence has been looked at. */
let looked = 1;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "cotal-kills-"));
  space = await startSpace({ auth: "user", delivery: false });
  nc = await space.store();
  ledger = brokerLedgerStore(nc, createWriter({ nc }), "main");
  auth = await startAuthService(space, {
    waitMs: 60_000,
    env: {
      NODE_OPTIONS: `--import=${join(import.meta.dirname, "..", "support", "durable-steps.ts")}`,
      COTAL_TEST_DURABLE: DURABLE,
      COTAL_TEST_DIE_FILE: die(),
    },
  });
  await holds();
}, 120_000);
afterAll(async () => {
  await auth.kill();
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

const die = (): string => join(folder, "die");
const say = (command: string, args: unknown) =>
  space.call(command, args, { endpoint: EndpointName.Auth, deadlineMs: 45_000 });
const times = (words: string): number => auth.log().split(words).length - 1;

let starts = 0;
/** The plane of the service's latest start is held. */
async function holds(): Promise<void> {
  starts += 1;
  await eventually(
    () => times(HELD),
    (held) => held === starts,
    60_000,
  );
}

type Lifecycle = { readonly p: Principal; readonly uid: string; readonly answer: ExchangeAnswer };
let born = 0;
async function lifecycle(): Promise<Lifecycle> {
  const answer = await auth.signIn(`killed_${(born += 1)}`);
  return { p: principal(answer.owner, answer.actor), uid: answer.lifecycleUid, answer };
}

/** The service counts its durable writes from now on. */
async function arm(what: string): Promise<void> {
  writeFileSync(die(), what);
  process.kill(auth.pid(), "SIGUSR2");
  await expect.poll(() => existsSync(die()), WAIT).toBe(false);
}

/** True if the service died of it. What it refused with, if it lived and did not do it. */
async function died(asked: Promise<unknown>): Promise<boolean> {
  const pid = auth.pid();
  const gone = eventually(
    () => !isThere(pid),
    (isGone) => isGone,
    60_000,
  ).then(() => true);
  return Promise.race([asked.then(() => false), gone]);
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const gateOf = async (uid: string): Promise<GateRow> => GateRow.parse(await valueOf("auth", ledgerKey.gate(uid)));
const headOf = async (p: Principal): Promise<HeadRow> => HeadRow.parse(await valueOf("records", ledgerKey.head(p)));

async function valueOf(bucket: "auth" | "records" | "acl", key: string): Promise<unknown> {
  const row = await ledger.read(bucket, key);
  return row.kind === "value" ? row.value : undefined;
}

async function activeOf(uid: string): Promise<string[]> {
  const keys = await ledger.keys("auth", ledgerKey.credsOf(uid));
  const rows = await Promise.all(keys.map(async (key) => CredentialRow.parse(await valueOf("auth", key))));
  return rows.flatMap(({ state, credentialId }) => (state === "active" ? [credentialId] : []));
}

/** Right after a death: nothing half-minted, no epoch begun beside the one before, no name free before its clean-up. */
async function expectContained({ p, uid }: Lifecycle): Promise<void> {
  looked = await expectWholeLedger(nc, looked);
  const [gate, head] = [await gateOf(uid), await headOf(p)];
  expect(head.lifecycleUid).toBe(uid);
  // An end that has only moved the head is shut by its gate; an epoch that has begun has nothing of the one before.
  if (head.processEpoch > 1 || gate.state === "retired") expect(await activeOf(uid)).toEqual([]);
  if (head.state !== "active") expect(gate.state).not.toBe("open");
  if (head.state !== "retired") return;
  expect(gate.state).toBe("retired");
  expect(await valueOf("records", ledgerKey.frontier(uid))).toMatchObject({ lifecycleUid: uid });
  expect(await valueOf("acl", ledgerKey.acl(p, uid))).toBeUndefined();
}

/** Runs it on a fresh lifecycle for each write, until a run lives. Hands back how many writes it died after. */
async function atEveryWrite(
  operation: (of: Lifecycle) => Promise<unknown>,
  then: (of: Lifecycle, gate: GateRow) => Promise<void>,
): Promise<number> {
  for (let at = 0; ; at += 1) {
    const of = await lifecycle();
    await arm(at === 0 ? "before:1" : `after:${at}`);
    const isDead = await died(operation(of));
    // What is counted no more must not die of its renewals.
    if (!isDead) await auth.kill();
    await expectContained(of);
    const gate = await gateOf(of.uid);
    await auth.restart();
    await holds();
    await then(of, gate);
    expect(await failure(auth.connect(of.answer))).toMatchObject({ code: "unauthenticated" });
    if (!isDead) return at - 1;
  }
}

describe("the service is killed after every durable write", () => {
  test("W131.11 W131.14 W131L.10 W131L.14 an end: contained at each, and it goes on by itself, or by the same request, with one operation", async () => {
    const uids = new Set<string>();
    const retire = ({ p, uid }: Lifecycle) => say("retire-lifecycle", { ...p, lifecycleUid: uid });
    const writes = await atEveryWrite(retire, async (of, gate) => {
      const { p, uid } = of;
      uids.add(uid);
      // Whoever holds the plane next takes it up where the gate says so; before that nothing of it has begun.
      if (gate.state === "open") await retire(of);
      await expect.poll(async () => (await headOf(p)).state, WAIT).toBe("retired");
      expect(await gateOf(uid)).toMatchObject({ state: "retired", op: { opId: `retire-${uid}`, kind: "retirement" } });
      expect(await activeOf(uid)).toEqual([]);
      expect(await valueOf("records", ledgerKey.frontier(uid))).toMatchObject({ opId: `retire-${uid}` });
      expect(await valueOf("records", ledgerKey.uid(uid))).toMatchObject({ lifecycleUid: uid });
    });
    // Actor, read list, gate, head, root, frontier, two durables, read list, gate, head: and what else it writes.
    expect(writes).toBeGreaterThanOrEqual(11);
    expect(uids.size).toBe(writes + 2);
  }, 900_000);

  test("W131.07 W131L.10 W131L.14 a takeover: contained at each, and the same request opens the next epoch of the same lifecycle", async () => {
    const rotate = ({ p, uid }: Lifecycle) => say("takeover-lifecycle", { ...p, lifecycleUid: uid, epoch: 1 });
    const writes = await atEveryWrite(rotate, async (of) => {
      const { p, uid } = of;
      expect(await rotate(of)).toEqual({ epoch: 2 });
      expect(await headOf(p)).toMatchObject({
        state: "active",
        processEpoch: 2,
        lastTakeoverOpId: `takeover-${uid}-1`,
      });
      expect(await gateOf(uid)).toEqual({ state: "open", generation: 2 });
      const again = await auth.signIn(p.actor);
      expect([again.lifecycleUid, await activeOf(uid)]).toEqual([uid, [expect.anything()]]);
      await (await auth.connect(again)).close();
    });
    // Stage, gate, root, head, gate.
    expect(writes).toBeGreaterThanOrEqual(5);
  }, 600_000);
});

describe("the service stands still with a gate frozen", () => {
  test("W131L.06 another plane opens nothing while it is there, however silent; killed, and proved gone, its takeover makes way for an end", async () => {
    const { p, uid } = await lifecycle();
    // After the stage and the gate.
    await arm("stop:2");
    const asked = say("takeover-lifecycle", { ...p, lifecycleUid: uid, epoch: 1 }).catch(() => undefined);
    await expect.poll(async () => (await gateOf(uid)).state, WAIT).toBe("frozen");
    const other = createAuthority(
      storeParts(space, await space.openStore(), undefined, {
        connectionsOf: () => Promise.resolve({ kind: "none" }),
        isSwept: () => Promise.resolve(true),
        endConnections: () => Promise.resolve(true),
      }),
    );
    const refused = await failure(other.retire(p, uid));
    expect(refused).toMatchObject({ code: "conflict" });
    expect(String(refused)).toContain("who carries it out is alive");
    expect(await gateOf(uid)).toMatchObject({ state: "frozen", op: { kind: "takeover", opId: `takeover-${uid}-1` } });
    await auth.kill("SIGKILL");
    // The broker learns of it a moment later than we do; until then it is alive, and refused.
    const ended = await eventually(
      () => other.retire(p, uid).catch((error: unknown) => error),
      (answer) => !(answer instanceof Error),
      60_000,
    );
    expect(ended).toEqual({ opId: `retire-${uid}` });
    // Opened once by its own operation, at its epoch: a generation more.
    expect(await gateOf(uid)).toMatchObject({ state: "retired", generation: 2, op: { kind: "retirement" } });
    expect(await headOf(p)).toMatchObject({ state: "retired", processEpoch: 1 });
    await asked;
    await auth.restart();
    await holds();
  }, 240_000);
});
