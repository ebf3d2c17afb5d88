/** Requests over one subscription end as nats.js's own do, on a real broker. */
import { setTimeout as sleep } from "node:timers/promises";
import {
  ClosedConnectionError,
  NoRespondersError,
  PermissionViolationError,
  RequestError,
  TimeoutError,
  connect,
  headers,
} from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { multiplex, request } from "../../shared/broker/requests.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";

let broker: TestBroker;
beforeAll(async () => {
  broker = await startBroker({
    lines: [
      "authorization { users: [",
      "{ user: all, password: all },",
      '{ user: some, password: some, permissions: { publish: ["free.>"], subscribe: ["_INBOX_me.>"] } },',
      '{ user: deaf, password: deaf, permissions: { publish: ["free.>"], subscribe: ["nothing"] } },',
      "] }",
    ],
  });
});
afterAll(() => broker.stop());

async function login(user: string) {
  const nc = await connect({ servers: broker.url, user, pass: user, inboxPrefix: "_INBOX_me", noAsyncTraces: true });
  multiplex(nc);
  return nc;
}
const thrown = (pending: Promise<unknown>): Promise<unknown> =>
  pending.then(
    () => undefined,
    (error: unknown) => error,
  );
const LONG = { timeoutMs: 10_000 };

test("each answer finds its request, however many wait and in whatever order they come", async () => {
  const [nc, server] = [await login("all"), await login("all")];
  server.subscribe("echo", {
    callback: (_, message) => void setTimeout(() => message.respond(message.data), Math.random() * 20),
  });
  await server.flush();
  const asked = Array.from({ length: 500 }, (_, n) => request(nc, "echo", String(n), LONG));
  expect((await Promise.all(asked)).map((answer) => answer.string())).toEqual(asked.map((_, n) => String(n)));
  const told = headers();
  told.set("Told", "yes");
  server.subscribe("told", { callback: (_, message) => void message.respond(message.headers?.get("Told") ?? "") });
  await server.flush();
  expect((await request(nc, "told", "", { ...LONG, headers: told })).string()).toBe("yes");
  await Promise.all([nc.close(), server.close()]);
});

test("nobody there, a refused publish and a refused inbox are said at once; silence at the deadline", async () => {
  const [some, deaf, server] = [await login("some"), await login("deaf"), await login("all")];
  server.subscribe("free.silent", { callback: () => undefined });
  await server.flush();
  expect(await thrown(request(some, "free.nobody", "", LONG))).toBeInstanceOf(NoRespondersError);
  expect(await thrown(request(some, "forbidden", "", LONG))).toBeInstanceOf(PermissionViolationError);
  expect(await thrown(request(some, "free.silent", "", { timeoutMs: 50 }))).toBeInstanceOf(TimeoutError);
  expect(await thrown(request(deaf, "free.silent", "", LONG))).toBeInstanceOf(PermissionViolationError);
  // Refused once, it asks again, and is refused again.
  expect(await thrown(request(deaf, "free.silent", "", LONG))).toBeInstanceOf(PermissionViolationError);
  await Promise.all([some.close(), deaf.close(), server.close()]);
});

test("what waits when the connection is closed is told, and what is asked afterwards too", async () => {
  const [nc, server] = [await login("all"), await login("all")];
  server.subscribe("silent", { callback: () => undefined });
  await server.flush();
  const pending = thrown(request(nc, "silent", "", LONG));
  await sleep(50);
  await nc.close();
  expect(await pending).toBeInstanceOf(RequestError);
  expect(await thrown(request(nc, "silent", "", LONG))).toBeInstanceOf(ClosedConnectionError);
  await server.close();
});

test("it goes on over a reconnect, on the same subscription", async () => {
  const [nc, server] = [await login("all"), await login("all")];
  server.subscribe("echo.again", { callback: (_, message) => void message.respond(message.data) });
  await server.flush();
  expect((await request(nc, "echo.again", "1", LONG)).string()).toBe("1");
  await Promise.all([nc.reconnect(), server.reconnect()]);
  await expect
    .poll(
      () =>
        request(nc, "echo.again", "2", { timeoutMs: 500 }).then(
          (answer) => answer.string(),
          () => "",
        ),
      {
        timeout: 10_000,
      },
    )
    .toBe("2");
  await Promise.all([nc.close(), server.close()]);
});
