/** Servers that drop a login have not refused it: a cluster that restarts ends no patient connection. */
import { type AddressInfo, type Server, createServer } from "node:net";
import { expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { failure } from "../support/refusal.ts";

/** Three servers that tell of each other; each answers CONNECT by `answer` and closes. */
async function three(answer: string): Promise<{ readonly servers: string[]; readonly stop: () => void }> {
  const urls: string[] = [];
  const listening = await Promise.all(
    [0, 1, 2].map(
      () =>
        new Promise<Server>((resolve) => {
          const server = createServer((socket) => {
            socket.on("error", () => undefined);
            const info = { server_id: "x", version: "2.12.0", max_payload: 1024, headers: true, connect_urls: urls };
            socket.write(`INFO ${JSON.stringify(info)}\r\n`);
            socket.once("data", () => socket.end(answer));
          }).listen(0, "127.0.0.1", () => resolve(server));
        }),
    ),
  );
  urls.push(...listening.map((server) => `127.0.0.1:${(server.address() as AddressInfo).port}`));
  return { servers: urls, stop: () => listening.forEach((server) => server.close()) };
}

test.each([
  ["dropped", "", "unavailable"],
  ["refused", "-ERR 'Authorization Violation'\r\n", "unauthenticated"],
])("a first dial that three servers of one cluster have %s is told as such", async (_, answer, code) => {
  const { servers, stop } = await three(answer);
  try {
    const reconnect = { kind: "single", attempts: 1, baseMs: 10, capMs: 20 } as const;
    const options = { servers, name: "t", inboxPrefix: "_INBOX.t", timeoutMs: 1000, reconnect };
    const source = { user: "u", pass: () => "p" };
    expect((await failure(openConnection({ ...options, authenticator: source }))).code).toBe(code);
  } finally {
    stop();
  }
}, 60_000);
