/** Servers that drop a login have not refused it: a cluster that restarts ends no patient connection. */
import { type AddressInfo, type Server, type Socket, connect as dial, createServer } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { failure } from "../support/refusal.ts";
import { type TestBroker, freePort, startBroker } from "../support/nats-server.ts";

/** More logins than three rounds over three servers make, each with its second look. */
const MANY = 30;

let brokers: readonly TestBroker[];
let proxies: readonly Server[];
let servers: string[];
/** Logins that the proxies still drop once CONNECT has been sent. */
let drops = 0;

const portOf = (server: Server): number => (server.address() as AddressInfo).port;

/** Stands before the broker that `port` names. */
function proxy(port: () => number): Promise<Server> {
  const server = createServer((client: Socket) => {
    const broker = dial(port(), "127.0.0.1");
    const both = [client, broker];
    for (const one of both) {
      one.on("error", () => undefined);
      one.on("close", () => void both.map((each) => each.destroy()));
    }
    broker.pipe(client);
    client.once("data", (connect) => {
      drops -= 1;
      if (drops >= 0) return client.destroy();
      broker.write(connect);
      return client.pipe(broker);
    });
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

beforeAll(async () => {
  proxies = await Promise.all([0, 1, 2].map((at) => proxy(() => brokers[at]?.port ?? 0)));
  servers = proxies.map((server) => `127.0.0.1:${portOf(server)}`);
  const routes = await Promise.all(proxies.map(() => freePort()));
  const peers = routes.map((route) => `"nats://127.0.0.1:${route}"`).join(", ");
  brokers = await Promise.all(
    routes.map((route, at) =>
      startBroker({
        config: (port) =>
          [
            `listen: "127.0.0.1:${port}"`,
            `server_name: n${at}`,
            `client_advertise: "${servers[at]}"`,
            `authorization { user: u, password: right }`,
            `cluster { name: c, listen: "127.0.0.1:${route}", routes: [${peers}] }`,
          ].join("\n"),
      }),
    ),
  );
}, 60_000);
afterAll(async () => {
  for (const server of proxies) server.close();
  await Promise.all(brokers.map((broker) => broker.stop()));
});

const options = (pass: string) => ({
  servers,
  name: "t",
  inboxPrefix: "_INBOX.t",
  timeoutMs: 250,
  authenticator: { user: "u", pass: () => pass },
});
const patient = { kind: "endless", baseMs: 5, capMs: 20 } as const;

test("a wrong credential ends at a cluster of three as unauthenticated, however patient the policy is", async () => {
  drops = 0;
  expect((await failure(openConnection({ ...options("wrong"), reconnect: patient }))).code).toBe("unauthenticated");
}, 60_000);

test("who may try once is told of drops as unavailable, and what to look at", async () => {
  drops = Number.POSITIVE_INFINITY;
  const reconnect = { kind: "single", attempts: 1, baseMs: 5, capMs: 20 } as const;
  const error = await failure(openConnection({ ...options("right"), reconnect }));
  expect(error).toMatchObject({
    code: "unavailable",
    outcome: "not-executed",
    next: "check that the broker runs at this address, and its log",
  });
}, 60_000);

test("a patient first dial outlasts more dropped rounds than denials are allowed, and a restart of each broker", async () => {
  drops = MANY;
  const told: string[] = [];
  const opening = openConnection({
    ...options("right"),
    reconnect: patient,
    onStatus: (status) => void (status.type === "retrying" && told.push(`${status.error?.code}`)),
  });
  const opened = opening.then(
    (connection) => connection,
    (thrown: unknown) => thrown as Error,
  );
  for (const broker of brokers) {
    await broker.kill();
    await broker.restart();
  }
  const connection = await opened;
  if (connection instanceof Error) throw connection;
  expect(told.length).toBeGreaterThan(3);
  expect(new Set(told)).toEqual(new Set(["unavailable"]));
  await connection.close();
}, 60_000);
