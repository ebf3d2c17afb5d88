/** Two authority planes for one space, as processes: one holds, whoever of them stands still or comes back (§13.13). */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { AuthCommand } from "../../shared/grants/commands.ts";
import { Outcome } from "../../shared/protocol/base/errors.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { OWNER } from "../support/plane-parts.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { stopProcess } from "../support/stopped.ts";

const HELD = "this process holds the authority plane";
const LOST = "a scanner of the authority plane has died";
const WAITS = "another process holds the authority plane";
const { auth: bucket } = spaceNames("main").bucket;

let space: TestSpace;
let store: NatsConnection;
let first: AuthService;
let second: AuthService;
beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  store = await space.store();
  first = await startAuthService(space, { waitMs: 60_000 });
  second = await startAuthService(space, { name: "second", waitMs: 60_000 });
}, 120_000);
afterAll(async () => {
  await second.stop();
  await first.stop();
  await space.stop();
});

async function plane(): Promise<PlaneRow | undefined> {
  const entry = await leaderLast(store, bucketStream(bucket), kvKey(bucket, "plane")).catch(() => undefined);
  return entry === undefined ? undefined : PlaneRow.parse(JSON.parse(new TextDecoder().decode(entry.data)));
}

/** Calls as the operator, and says which process has answered. */
async function operator() {
  const credential = readCredsFile(trustPaths(space.state).operatorCreds("main"));
  const { nc, inboxPrefix } = await space.open(credential);
  const { principal, uid } = credential.view;
  const caller = { principal, uid };
  const denials = watchDenials(nc);
  const call = createCaller({ nc, space: "main", caller, name: "operator", inboxPrefix, denials, random: randomBytes });
  return { call, flush: () => nc.flush() };
}

const times = (log: string, words: string): number => log.split(words).length - 1;
const WAIT = { timeout: 60_000 } as const;

test("PI.01 a holder that stands still keeps the plane until it is proved gone; when it goes on it holds nothing", async () => {
  await expect.poll(() => first.log(), WAIT).toContain(HELD);
  await expect.poll(() => second.log(), WAIT).toContain(WAITS);
  const before = await plane();
  stopProcess(first.pid());
  try {
    // Silence proves nothing: its connection is there. A third one that starts meanwhile finds the same.
    const third = await startAuthService(space, { name: "third", waitMs: 60_000 });
    await expect.poll(() => third.log(), WAIT).toContain(WAITS);
    await third.stop();
    expect(await plane()).toEqual(before);
    expect(second.log()).not.toContain(HELD);
    // With the broker its connection is gone for good, and that is proof.
    await space.broker.kill();
    await space.broker.restart();
    await expect.poll(() => second.log(), WAIT).toContain(HELD);
  } finally {
    process.kill(first.pid(), "SIGCONT");
  }
  await expect.poll(() => first.log(), WAIT).toContain(LOST);
  await expect.poll(() => times(first.log(), WAITS), WAIT).toBe(1);
  const after = await plane();
  expect(after).toMatchObject({ state: "held" });
  expect(after?.claimId).not.toBe(before?.claimId);
  // It never held it again, and nobody was restarted.
  expect([times(first.log(), HELD), times(second.log(), HELD)]).toEqual([1, 1]);
}, 240_000);

test("PI.01 W132.12 one that stood still and has lost the plane does nothing of what was asked of it meanwhile", async () => {
  const before = await plane();
  if (before === undefined) throw new Error("nobody holds the plane");
  const scope = { ...freshHolder(OWNER, "evictor"), space: "main", spaceAccounts: [] };
  const system = await space.connect(await daemonCredential(space, "connection-evictor", "system", scope));
  const { call, flush } = await operator();
  const granted = (actor: string) =>
    call(EndpointName.Auth, AuthCommand.ActorGrant, { owner: OWNER, actor }, { deadlineMs: 60_000 });
  const { epoch } = await granted("before");
  stopProcess(second.pid());
  try {
    // Its scanners alone: what it serves with stands, and takes its share of the commands.
    for (const { serverId, cid } of [before.ledger, before.records]) {
      await system.request(`$SYS.REQ.SERVER.${serverId}.KICK`, JSON.stringify({ cid }));
    }
    await expect.poll(() => times(first.log(), HELD), WAIT).toBe(2);
    const asked = Array.from({ length: 24 }, (_, n) => granted(`meanwhile${n}`));
    await flush();
    process.kill(second.pid(), "SIGCONT");
    const answers = await Promise.allSettled(asked);
    const done = answers.flatMap((one) => (one.status === "fulfilled" ? [one.value.epoch] : []));
    const refused = answers.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
    // Whoever holds it now is nobody's predecessor, also where its process is the older one.
    expect(done.length).toBeGreaterThan(0);
    expect(Math.min(...done)).toBeGreaterThan(epoch);
    expect(refused.length).toBeGreaterThan(0);
    // Its answers come from a predecessor by now (§13.2), and each says that it has done nothing.
    for (const one of refused) expect(one).toMatchObject({ outcome: Outcome.NotExecuted });
  } finally {
    process.kill(second.pid(), "SIGCONT");
  }
  await expect.poll(() => second.log(), WAIT).toContain(LOST);
}, 240_000);

test("PI.01 while the plane changes hands a newcomer waits for it, and is not sent away", async () => {
  // The first is its holder by now: the second was kicked out of it.
  await expect.poll(() => times(second.log(), WAITS), WAIT).toBeGreaterThan(1);
  await first.kill("SIGKILL");
  expect(await second.signIn("meanwhile")).toMatchObject({ actor: "meanwhile" });
  await first.restart();
}, 120_000);
