/** What a session puts on the wire, read off a proxy between it and the broker. */
import { type Socket, connect as dial, createServer } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Session, connect } from "../../shared/client/index.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
const sockets: Socket[] = [];
const lines: string[] = [];
const server = createServer((client) => {
  const broker = dial(space.broker.port, "127.0.0.1");
  sockets.push(client, broker);
  client.on("data", (data) => lines.push(...data.toString("latin1").split("\r\n")));
  client.pipe(broker).pipe(client);
  for (const socket of [client, broker]) socket.on("error", () => undefined);
});
const sessions: Session[] = [];

beforeAll(async () => {
  space = await startSpace({ auth: "static" });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  await Promise.all(sessions.map((session) => session.close()));
  for (const socket of sockets) socket.destroy();
  server.close();
  await space.stop();
});

const port = (): number => {
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
};
const of = (verb: string): string[] => lines.filter((line) => line.startsWith(`${verb} `));

test("W10.02 W6.16: the first subscription is in the own inbox, and an idle agent asks for no presence", async () => {
  const { text, view } = await space.mint({ actor: "bob", subscribe: ["general"], publish: ["general"] });
  const session = await connect({ servers: [`127.0.0.1:${port()}`], credentials: { kind: "static", text } });
  sessions.push(session);
  await session.listen();
  await (
    await session.join("general")
  ).replayed;
  await until("a pull went out", () => of("PUB").some((line) => line.includes("MSG.NEXT")));
  await until("a heartbeat went out", () => [...of("PUB"), ...of("HPUB")].some((line) => line.includes("$KV.")));
  const subscriptions = of("SUB").map((line) => line.split(" ")[1] ?? "");
  expect(subscriptions[0]).toMatch(new RegExp(`^_INBOX_${view.uid}_${view.inboxNonce}\\.`));
  const foreign = subscriptions.filter((subject) => subject.startsWith("_INBOX") && !subject.includes(view.inboxNonce));
  expect(foreign).toEqual([]);
  expect(subscriptions.filter((subject) => subject.includes("presence"))).toEqual([]);
  expect(lines.join("\n")).not.toContain("CONSUMER.CREATE");
});

test("W3.08 W3.06: nothing that is refused locally leaves a trace on the wire", async () => {
  const { text } = await space.mint({ actor: "carol", publish: ["general"] });
  const session = await connect({
    servers: [`127.0.0.1:${port()}`],
    credentials: { kind: "static", text },
    presence: false,
  });
  sessions.push(session);
  lines.length = 0;
  const refused = [
    session.send("$JS.API.STREAM.DELETE.CHAT_main", "x"),
    session.send("general.*", "x"),
    session.send("c".repeat(4097), "x"),
    session.ask("re view", "x"),
    session.ask("*", "x"),
    session.liveness("auth" as "manager"),
    session.send("general", [{ kind: "bare" } as never]),
  ];
  for (const one of refused) await expect(one).rejects.toMatchObject({ code: "bad-request", outcome: "not-executed" });
  await session.send("general", "this one goes");
  expect([...of("PUB"), ...of("HPUB")].filter((line) => !line.includes("cotal.main.chat."))).toEqual([]);
  expect(of("HPUB")).toHaveLength(1);
});
