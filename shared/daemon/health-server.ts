/**
 * The three questions an orchestrator asks a process, over HTTP.
 *
 * `/livez`: does the process run? It fails only by not answering: a broker that is away, or a check that
 * fails, is no reason to kill a process that will heal. `/readyz`: is every check ok? `/metrics`: the
 * exposition.
 *
 * Invariants
 * 1. GET (and HEAD) on exactly these three paths; no query, no body, no other route.
 * 2. Small and bounded: short headers, short timeouts, few connections, one request each.
 */
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import type { CheckReport, Health } from "./health.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export type HealthServerOptions = {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  readonly health: Health;
  readonly metrics: Metrics;
  readonly log: Log;
};

export type HealthServer = {
  readonly port: number;
  /** Stops listening and cuts what is open. */
  readonly close: () => Promise<void>;
};

type Answer = { readonly status: number; readonly type: string; readonly body: string; readonly allow?: string };
type Route = () => Promise<Answer> | Answer;

const JSON_TYPE = "application/json; charset=utf-8";
const MAX_CONNECTIONS = 64;
const TIMEOUT_MS = 5000;

/** Starts to listen. Throws `failed-precondition` when the address is not to be had. */
export async function startHealthServer(options: HealthServerOptions): Promise<HealthServer> {
  const { health, metrics, log } = options;
  const routes = new Map<string, Route>([
    ["/livez", () => report(200, "ok", [{ name: "process", ok: true, detail: "the process answers", next: "" }])],
    [
      "/readyz",
      () => {
        const { status, checks } = health.report();
        return report(status === "ok" ? 200 : 503, status, checks);
      },
    ],
    ["/metrics", async () => ({ status: 200, type: metrics.contentType, body: await metrics.text() })],
  ]);

  const server = createServer(
    { maxHeaderSize: 8192, headersTimeout: TIMEOUT_MS, requestTimeout: TIMEOUT_MS, keepAlive: false },
    (request, response) => {
      answer(routes, request).then(
        (ready) => send(request, response, ready),
        (cause: unknown) => {
          log.error("a health question could not be answered", { path: request.url, err: cause });
          send(
            request,
            response,
            refuse(500, "internal", "the answer could not be made", "read the log of this process"),
          );
        },
      );
    },
  );
  server.maxConnections = MAX_CONNECTIONS;
  await listen(server, options);
  server.on("error", (err) => log.error("the health server failed", { err }));
  return { port: (server.address() as AddressInfo).port, close: () => close(server) };
}

async function answer(routes: ReadonlyMap<string, Route>, request: IncomingMessage): Promise<Answer> {
  const route = routes.get(request.url ?? "");
  if (route === undefined) {
    return refuse(404, "no-route", "there is no such path here", `ask for ${[...routes.keys()].join(", ")}`);
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    return { ...refuse(405, "no-method", "this path is only read", "use GET"), allow: "GET, HEAD" };
  }
  return route();
}

function report(status: number, text: string, checks: readonly CheckReport[]): Answer {
  return { status, type: JSON_TYPE, body: `${JSON.stringify({ status: text, checks })}\n` };
}

function refuse(status: number, name: string, detail: string, next: string): Answer {
  return report(status, "refused", [{ name, ok: false, detail, next }]);
}

function send(request: IncomingMessage, response: ServerResponse, { status, type, body, allow }: Answer): void {
  response.writeHead(status, {
    "content-type": type,
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    // One request per connection: idle ones never fill the few places.
    connection: "close",
    ...(allow === undefined ? {} : { allow }),
  });
  response.end(request.method === "HEAD" ? undefined : body);
}

function listen(server: Server, { host, port }: { readonly host: string; readonly port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    const refused = (error: NodeJS.ErrnoException): void => {
      reject(
        new CotalError(
          ErrorCode.FailedPrecondition,
          `health can't listen on ${host}:${port} (${error.code ?? error.message})`,
          {
            next: "give COTAL_HEALTH_HOST and COTAL_HEALTH_PORT an address that is free, or port 0",
            cause: error,
          },
        ),
      );
    };
    server.once("error", refused);
    server.listen({ host, port }, () => {
      server.off("error", refused);
      resolve();
    });
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve, reject) => {
    server.close((error) => (error === undefined ? resolve() : reject(error)));
    server.closeAllConnections();
  });
}
