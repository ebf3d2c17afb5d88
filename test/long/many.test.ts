/**
 * Three hundred agents in one space: minted, joined, present, reached by one post; then sixty of them
 * are put out by the three steps of a deprovision while the others go on.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { residentMiB, sleep, unheardRejections } from "../support/vitals.ts";

const AGENTS = 300;
const OUT = 60;
const PRESENT_MS = 30_000;

let space: TestSpace;
let sessions: Sessions;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
}, 60_000);

type Agent = { readonly credential: Minted; readonly session: TestSession; readonly heard: string[] };

/** So many at a time, in order. */
async function inTurns<T, R>(list: readonly T[], width: number, work: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < list.length; at += width) {
    results.push(...(await Promise.all(list.slice(at, at + width).map(work))));
  }
  return results;
}

async function agent(number: number): Promise<Agent> {
  const credential = await space.mint({ actor: `a${number}`, subscribe: ["plaza"], publish: ["plaza"] });
  const session = await sessions.own({ credentials: { kind: "static", text: credential.text } });
  const heard: string[] = [];
  session.onItem((item) => void heard.push(item.text));
  await (
    await session.join("plaza")
  ).replayed;
  return { credential, session, heard };
}

type Connection = { readonly name?: string };

/** Every connection that the broker has of the provisioner's own. */
async function provisionerConnections(): Promise<number> {
  const credential = await daemonCredential(space, "system-administrator", "system", {
    ...freshHolder(`u_${"d".repeat(26)}`, "trust"),
    space: "broker",
  });
  const system = await space.connect(credential);
  const answer = await system.request(sys.ping("CONNZ"), JSON.stringify({ limit: 2000 }), { timeout: 5000 });
  await system.close();
  const { data } = answer.json<{ data: { connections: readonly Connection[] } }>();
  return data.connections.filter(({ name }) => name?.startsWith("provisioner ")).length;
}

async function readsRoster(reader: TestSession): Promise<string[]> {
  return (await reader.roster())
    .filter(({ live }) => live)
    .map(({ name }) => name)
    .toSorted();
}

test("300 agents are present and reached; 60 are put out for good, and nobody else notices", async () => {
  const rejections = unheardRejections();
  const daemon = space.provisioner.pid();
  const operator = await sessions.minted({ actor: "ops", subscribe: ["plaza"], publish: ["plaza"] });
  const residentAtFirst = residentMiB(daemon);
  const connectionsAtFirst = await provisionerConnections();

  const began = performance.now();
  const numbers = Array.from({ length: AGENTS }, (_, index) => index);
  const agents = await inTurns(numbers, 10, agent);
  const mintedIn = (performance.now() - began) / 1000;
  const names = [...numbers.map((number) => `a${number}`), "ops"].toSorted();

  // At rest: heartbeats at their normal pace, and nobody is ever taken for gone.
  const end = performance.now() + PRESENT_MS;
  const gaps: string[] = [];
  await until("all are in the roster", async () => {
    const { length } = await readsRoster(operator);
    return length === AGENTS + 1 || `${length} of them`;
  });
  while (performance.now() < end) {
    const live = new Set(await readsRoster(operator));
    gaps.push(...names.filter((name) => !live.has(name)));
    await sleep(1000);
  }
  expect(gaps).toEqual([]);
  const residentWithAll = residentMiB(daemon);
  const connectionsWithAll = await provisionerConnections();

  await operator.send("plaza", "to all");
  await until("all heard it", () => agents.every(({ heard }) => heard.includes("to all")));
  expect(agents.filter(({ heard }) => heard.length !== 1)).toEqual([]);

  const [out, stay] = [agents.slice(0, OUT), agents.slice(OUT)];
  const begun = await inTurns(out, 10, async ({ credential }) => {
    const { owner, actor } = credential.view.principal;
    const answer = (await space.call("deprovision", { owner, actor })) as {
      uid: string;
      opId: string;
      users: string[];
    };
    return { owner, actor, ...answer };
  });
  const users = begun.flatMap((one) => one.users);
  expect(new Set(users)).toEqual(new Set(out.map(({ credential }) => credential.view.userKey)));
  const revoked = await space.trust("revoke", "--space", "main", "--server", space.url, "--users", users.join(","));
  expect(revoked).toMatchObject({ kind: "revoked", users: OUT });
  await inTurns(begun, 10, ({ owner, actor, uid, opId }) =>
    space.call("deprovision-complete", { owner, actor, uid, opId }),
  );

  // Each that is out ends in a named state, and stays out.
  const ends = await Promise.all(out.map(({ session }) => session.closed));
  expect([...new Set(ends.map((cause) => cause?.code))]).toEqual(["unauthenticated"]);
  const again = await inTurns(out, 10, ({ credential }) =>
    sessions
      .own({
        credentials: { kind: "static", text: credential.text },
        reconnect: { kind: "bounded", attempts: 1 },
      })
      .then(
        () => "connected",
        (thrown: { code?: string }) => thrown.code,
      ),
  );
  expect([...new Set(again)]).toEqual(["unauthenticated"]);

  // The others: never down, all still there, all reached.
  await operator.send("plaza", "to the rest");
  await until("the rest heard it", () => stay.every(({ heard }) => heard.includes("to the rest")));
  const disturbed = [operator, ...stay.map(({ session }) => session)].flatMap(({ told, me }) =>
    told.filter(({ type }) => !["shortfall"].includes(type)).map(({ type }) => `${me.name}: ${type}`),
  );
  expect(disturbed).toEqual([]);
  expect(out.filter(({ heard }) => heard.includes("to the rest"))).toEqual([]);
  const left = names.filter((name) => !out.some(({ credential }) => credential.view.name === name));
  await until("the roster is what is left", async () => (await readsRoster(operator)).join() === left.join());

  const resident = residentMiB(daemon);
  const connections = await provisionerConnections();
  console.log(
    [
      `${AGENTS} minted, connected and joined in ${mintedIn.toFixed(1)} s`,
      `provisioner ${residentAtFirst.toFixed(0)} MiB at first, ${residentWithAll.toFixed(0)} with all, ${resident.toFixed(0)} at the end`,
      `its connections ${connectionsAtFirst}, ${connectionsWithAll}, ${connections}`,
    ].join("; "),
  );
  expect(space.provisioner.pid()).toBe(daemon);
  expect(residentWithAll).toBeGreaterThan(0);
  expect(Math.max(residentWithAll, resident)).toBeLessThan(400);
  // Agents cost it no connection, and a deprovision leaves none behind.
  expect([connectionsWithAll, connections]).toEqual([connectionsAtFirst, connectionsAtFirst]);
  rejections.stop();
  expect(rejections.seen).toEqual([]);
}, 240_000);
