/**
 * Where the browser brings the provider's answer: a listener of one sign-in on this machine (RFC 8252, 7.3).
 *
 * Invariants
 * 1. It listens on 127.0.0.1 only, on a port that the system picks, and ends with the sign-in.
 * 2. Only an answer with the state of this sign-in counts. Any other request is refused and changes
 *    nothing: a page of somebody else can neither finish nor spoil it.
 * 3. The first answer is the only one. What it carries is shown on no page.
 */
import { timingSafeEqual } from "node:crypto";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";

const HOST = "127.0.0.1";
const CALLBACK_PATH = "/callback";
const MAX_CONNECTIONS = 32;
const MAX_HEADER_BYTES = 16 * 1024;
const ARRIVE_MS = 10_000;

export type Loopback = {
  readonly redirect: string;
  /** The address that the provider sent the browser to, with code or error in it. */
  readonly answer: Promise<URL>;
  readonly close: () => void;
};

export async function listenForAnswer(state: string): Promise<Loopback> {
  let took = (_url: URL): void => undefined;
  const answer = new Promise<URL>((resolve) => {
    took = resolve;
  });
  let isAnswered = false;
  const server = createServer({ maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: ARRIVE_MS }, (request, response) => {
    const url = isAnswered ? undefined : answerIn(request, own(server), state);
    if (url === undefined) return page(response, 400, "This is no answer to the sign-in that is under way.");
    isAnswered = true;
    page(response, 200, "You can close this page. The terminal says how the sign-in went.");
    took(url);
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.headersTimeout = ARRIVE_MS;
  await listen(server);
  return {
    redirect: `http://${own(server)}${CALLBACK_PATH}`,
    answer,
    close: () => {
      server.close();
      // The page must still arrive.
      server.closeIdleConnections();
      server.unref();
    },
  };
}

function listen(server: Server): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, HOST, () => resolve());
  });
}

function own(server: Server): string {
  const address = server.address();
  return `${HOST}:${typeof address === "object" && address !== null ? address.port : 0}`;
}

function answerIn({ method, headers, url = "" }: IncomingMessage, host: string, state: string): URL | undefined {
  // Another name that leads here is a page's trick (DNS rebinding).
  if (method !== "GET" || headers.host !== host || !url.startsWith(`${CALLBACK_PATH}?`)) return undefined;
  const base = `http://${host}`;
  if (!URL.canParse(url, base)) return undefined;
  const given = new URL(url, base);
  const [said = "", ...more] = given.searchParams.getAll("state");
  return more.length === 0 && isSame(said, state) ? given : undefined;
}

function isSame(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function page(response: ServerResponse, status: number, text: string): void {
  response
    .writeHead(status, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      connection: "close",
    })
    .end(`<!doctype html><title>cotal</title><p>${text}</p>`);
}
