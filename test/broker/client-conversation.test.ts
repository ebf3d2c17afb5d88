/** The main path: sessions that talk in an open space, with the real provisioner. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type InboxItem, type Session, type SessionOptions, connect } from "../../shared/client/index.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
const sessions: Session[] = [];
const started = performance.now();

beforeAll(async () => {
  space = await startSpace({ auth: "open" });
});
afterAll(async () => {
  await Promise.all(sessions.map((session) => session.close()));
  await space.stop();
});

async function open(actor: string, more: Partial<SessionOptions> = {}): Promise<Session> {
  const session = await connect({
    servers: [space.url],
    space: "main",
    credentials: { kind: "open", actor },
    ...more,
  });
  sessions.push(session);
  return session;
}

async function take(session: Session, count: number): Promise<InboxItem[]> {
  const items: InboxItem[] = [];
  const inbox = session.inbox();
  while (items.length < count) {
    const next = await inbox.next();
    if (next.done === true) break;
    next.value.ack();
    items.push(next.value);
  }
  await inbox.return?.();
  return items;
}

test("two sessions talk: channel, direct message, role", async () => {
  const alice = await open("alice");
  const bob = await open("bob", { role: "reviewer" });
  await bob.listen();
  const joined = await bob.join("team.backend");
  expect(joined).toMatchObject({ channel: "team.backend", state: "joined live" });
  await joined.replayed;
  const said = await alice.send("#team.backend", "hello @bob");
  expect(said).toMatchObject({ kind: "chat", stream: "CHAT_main", seq: 1, duplicate: false });
  expect(await take(bob, 1)).toMatchObject([
    { kind: "chat", channel: "team.backend", text: "hello @bob", historical: false, mentions: ["bob"] },
  ]);
  const written = await alice.dm("local.bob", "psst");
  expect(written).toMatchObject({ kind: "dm", stream: "DM_main" });
  expect(await take(bob, 1)).toMatchObject([{ kind: "dm", text: "psst", from: { id: "local.alice", name: "alice" } }]);
  expect(await alice.ask("reviewer", "look?")).toMatchObject({ kind: "ask", stream: "TASK_main" });
  expect(await take(bob, 1)).toMatchObject([{ kind: "ask", role: "reviewer", text: "look?" }]);
  console.log("ms", performance.now() - started, bob.stats());
  const t0 = performance.now();
  await bob.drain();
  console.log("drain", performance.now() - t0);
});
