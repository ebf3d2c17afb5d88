/**
 * The clients of the `callout` bench: connects, as bytes on a socket, and exchanges over HTTP. The same
 * for both sides, and as cheap as can be, so that what is measured is who answers.
 *
 * A connect is counted from the dial until the broker has answered the first PING: it is in then.
 */
import { randomBytes } from "node:crypto";
import { Agent, request } from "node:http";
import { connect as dial } from "node:net";
import { connId, drawNonce } from "../../shared/protocol/base/principals.ts";
import { answerParent } from "./child.ts";
import { pipelined } from "./jobs.ts";

/** Somebody who has signed in. */
export type Seat = { readonly bearer: string; readonly uid: string };

export type Load =
  | { readonly kind: "seats"; readonly seats: readonly Seat[] }
  | {
      readonly kind: "connects";
      readonly port: number;
      readonly sentinel: string;
      readonly count: number;
      readonly inFlight: number;
      /** How often a connect that failed is tried again; a bench counts none that way. */
      readonly again?: number;
    }
  | {
      readonly kind: "exchanges";
      /** Asked in turn. */
      readonly faces: readonly Face[];
      /** Each is sent as often as it takes. */
      readonly bodies: readonly string[];
      readonly count: number;
      readonly inFlight: number;
    };

export type Face = { readonly url: string; readonly headers: Readonly<Record<string, string>> };

/** How long each took, and all of them together. */
export type Taken = { readonly each: readonly number[]; readonly ms: number };

let seats: readonly Seat[] = [];
let next = 0;

function inTurn<T>(list: readonly T[], n: number): T {
  const found = list[n % list.length];
  if (found === undefined) throw new Error("there is nobody to take turns");
  return found;
}

/** Nobody connects more often than anybody else. */
const nextSeat = (): Seat => inTurn(seats, (next += 1));

function connectLine(sentinel: string, { bearer, uid }: Seat): string {
  const options = {
    verbose: false,
    pedantic: false,
    lang: "bench",
    version: "1.0.0",
    protocol: 1,
    headers: true,
    no_responders: true,
    jwt: sentinel,
    auth_token: bearer,
    name: connId(uid, drawNonce(randomBytes)),
  };
  return `CONNECT ${JSON.stringify(options)}\r\nPING\r\n`;
}

/** Milliseconds that it took to get in. */
function connectOnce(port: number, line: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const socket = dial({ port, host: "127.0.0.1", noDelay: true });
    let heard = "";
    const fail = (why: string): void => {
      socket.destroy();
      reject(new Error(`a connect failed: ${why}`));
    };
    socket.setTimeout(10_000, () => fail("silence"));
    socket.once("error", ({ message }) => fail(message));
    socket.once("close", () => fail("the broker closed it"));
    socket.once("data", () => socket.write(line));
    socket.on("data", (chunk: Buffer) => {
      heard += chunk.toString("latin1");
      if (heard.includes("-ERR")) fail(heard.slice(heard.indexOf("-ERR"), heard.indexOf("-ERR") + 80));
      if (!heard.includes("PONG\r\n")) return;
      resolve(performance.now() - began);
      socket.destroy();
    });
  });
}

async function comeIn({ port, sentinel, again = 0 }: Extract<Load, { kind: "connects" }>): Promise<number> {
  for (let left = again; ; left -= 1) {
    try {
      return await connectOnce(port, connectLine(sentinel, nextSeat()));
    } catch (thrown) {
      if (left === 0) throw thrown;
    }
  }
}

const agent = new Agent({ keepAlive: true });

function exchangeOnce({ url, headers }: Face, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const asked = request(url, { method: "POST", agent, headers: { "content-type": "application/json", ...headers } });
    asked.once("error", reject);
    asked.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        if (response.statusCode === 200) resolve(performance.now() - began);
        else reject(new Error(`an exchange was refused with ${response.statusCode}: ${text.slice(0, 200)}`));
      });
    });
    asked.end(body);
  });
}

async function taken(count: number, inFlight: number, once: (n: number) => Promise<number>): Promise<Taken> {
  const each: number[] = [];
  const began = performance.now();
  await pipelined(count, inFlight, async (n) => void each.push(await once(n)));
  return { each, ms: performance.now() - began };
}

answerParent(async (load: Load): Promise<Taken | undefined> => {
  switch (load.kind) {
    case "seats":
      ({ seats } = load);
      return undefined;
    case "connects":
      return taken(load.count, load.inFlight, () => comeIn(load));
    case "exchanges":
      return taken(load.count, load.inFlight, (n) => exchangeOnce(inTurn(load.faces, n), inTurn(load.bodies, n)));
  }
});
