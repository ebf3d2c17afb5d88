/**
 * First dials of a cluster of three: who is refused is told so, and who is dropped comes in once the servers are there.
 *
 * The servers are real ones. In front of each stands somebody who can end a login in the middle, as a server does that
 * is on its way down; each server tells of the others by those in front of them.
 */
import { type Server, type Socket, connect as dial, createServer } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type ConnectOptions, type ConnectionStatus, openConnection } from "../../shared/broker/connect.ts";
import type { Connection } from "../../shared/broker/connection.ts";
import { type TestBroker, freePort, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import { until } from "../support/until.ts";

let brokers: readonly TestBroker[];
let doors: readonly Server[];
let servers: readonly string[];
let isDropping = false;
/** Told of each dial as it comes in. */
let onDial: () => void = () => undefined;
const open = new Set<Socket>();
const opened: Connection[] = [];

beforeAll(async () => {
  const ports = async (): Promise<number[]> => await Promise.all([freePort(), freePort(), freePort()]);
  const [fronts, routes] = [await ports(), await ports()];
  const peers = routes.map((route) => `"nats://127.0.0.1:${route}"`).join(", ");
  brokers = await Promise.all(
    routes.map((route, at) =>
      startBroker({
        config: (port) =>
          [
            `listen: "127.0.0.1:${port}"`,
            `client_advertise: "127.0.0.1:${fronts[at]}"`,
            `server_name: n${at}`,
            `cluster { name: c, listen: "127.0.0.1:${route}", routes: [${peers}] }`,
            `authorization { users: [{ user: u, password: right }] }`,
          ].join("\n"),
      }),
    ),
  );
  doors = await Promise.all(brokers.map(({ port }, at) => standBefore(port, fronts[at] ?? 0)));
  servers = fronts.map((port) => `nats://127.0.0.1:${port}`);
}, 60_000);

afterEach(async () => {
  isDropping = false;
  onDial = () => undefined;
  for (const link of opened.splice(0)) await link.close();
});

afterAll(async () => {
  for (const socket of open) socket.destroy();
  for (const door of doors) door.close();
  await Promise.all(brokers.map((broker) => broker.stop()));
});

/** Passes on what both say; while `isDropping`, it ends a connection at the client's first word. */
function standBefore(broker: number, at: number): Promise<Server> {
  const door = createServer((client) => {
    onDial();
    const server = dial(broker, "127.0.0.1");
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      open.add(one);
      one.on("error", () => undefined);
      one.on("data", (bytes) => {
        if (isDropping && one === client) one.destroy();
        else other.write(bytes);
      });
      one.once("close", () => {
        open.delete(one);
        other.destroy();
      });
    }
  });
  return new Promise((resolve) => door.listen(at, "127.0.0.1", () => resolve(door)));
}

type Dialed = { readonly seen: ConnectionStatus[]; readonly link: Promise<Connection> };

function dialing(pass: string, options: Partial<ConnectOptions> = {}): Dialed {
  const seen: ConnectionStatus[] = [];
  const link = openConnection({
    name: "test",
    servers,
    inboxPrefix: "_INBOX_test_1",
    authenticator: { user: "u", pass: () => pass },
    reconnect: { kind: "endless", baseMs: 20, capMs: 100 },
    timeoutMs: 2000,
    onStatus: (status) => seen.push(status),
    ...options,
  });
  link.then(
    (one) => opened.push(one),
    () => undefined,
  );
  return { seen, link };
}

const codes = (seen: readonly ConnectionStatus[]): string[] =>
  seen.flatMap((status) =>
    status.type === "retrying" ? [(status.error as { code?: string } | undefined)?.code ?? ""] : [],
  );

/** More than the refusals that end an endless connection. */
const MANY = 4;

test.each([1, 3])("a wrong password ends the first dial, with %i servers configured", async (configured) => {
  const { seen, link } = dialing("wrong", { servers: servers.slice(0, configured) });
  expect((await failure(link)).code).toBe("unauthenticated");
  expect(new Set(codes(seen))).toEqual(new Set(["unauthenticated"]));
});

test.each([1, 3])("logins that are dropped end no patient dial, with %i servers configured", async (configured) => {
  isDropping = true;
  // nats.js waits for the whole timeout where a socket closes during its login.
  const { seen, link } = dialing("right", { servers: servers.slice(0, configured), timeoutMs: 250 });
  await until("many rounds were dropped", () => codes(seen).length >= MANY);
  expect(new Set(codes(seen))).toEqual(new Set(["unavailable"]));
  isDropping = false;
  expect((await link).isUp()).toBe(true);
});

test("who has few attempts is told that the servers are not there, and not that they refuse him", async () => {
  isDropping = true;
  const error = await failure(dialing("right", { reconnect: { kind: "single", attempts: 2 }, timeoutMs: 250 }).link);
  expect(error).toMatchObject({ code: "unavailable", outcome: "not-executed" });
});

test.each([
  [2, "its round"],
  [5, "the look at each server"],
])("called off at dial %i, in %s, it is over, and no further server is dialed", async (last) => {
  isDropping = true;
  const off = new AbortController();
  let dials = 0;
  onDial = () => {
    dials += 1;
    if (dials === last) off.abort();
  };
  expect(await failure(dialing("right", { signal: off.signal, timeoutMs: 250 }).link)).toMatchObject({
    code: "cancelled",
  });
  expect(dials).toBe(last);
});

test("called off between two rounds, it does not wait for the next", async () => {
  isDropping = true;
  const off = new AbortController();
  const reconnect = { kind: "endless", baseMs: 3_600_000, capMs: 3_600_000 } as const;
  // As a command line does that has had enough.
  const onStatus = () => off.abort();
  const { link } = dialing("right", { signal: off.signal, timeoutMs: 250, reconnect, onStatus });
  expect(await failure(link)).toMatchObject({ code: "cancelled" });
});

test("servers that restart one after another let everybody in who dials meanwhile", async () => {
  let isOver = false;
  const ends: string[] = [];
  const dials = Array.from({ length: 3 }, async () => {
    while (!isOver) {
      const { link } = dialing("right");
      ends.push(
        await link.then(
          async (one) => {
            await one.close();
            return "up";
          },
          (error: { code?: string }) => error.code ?? "unknown",
        ),
      );
    }
  });
  for (const broker of brokers) {
    const before = ends.length;
    await broker.kill();
    await broker.restart();
    await until("somebody came in since", () => ends.length > before);
  }
  isOver = true;
  await Promise.all(dials);
  expect(new Set(ends)).toEqual(new Set(["up"]));
}, 60_000);
