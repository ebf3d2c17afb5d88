/**
 * A face of the auth service over HTTP (§10): the exchange, the bearers' public key, and whether it works.
 *
 * One face belongs to one space: it mints from that space's keys and ledger and from no others.
 *
 * Invariants
 * 1. A loopback face listens on a loopback address only, and every route that does something asks for the
 *    capability of this start. A request with an `Origin` comes from a web page and is refused, whatever
 *    it carries.
 * 2. JSON of at most 64 KiB, no query: a token never stands in an address.
 * 3. Every answer is JSON of ours, also for what no route takes and for bytes that are no HTTP; nothing
 *    of the request is repeated.
 * 4. Bounded: connections, headers, bodies, and the time that a request may take to arrive.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import helmet from "@fastify/helmet";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { ExchangeHeader, ExchangePath } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../../shared/protocol/endpoint/views.ts";
import type { BearerKey } from "../../../shared/trust/bearer.ts";
import { type Answer, refuse, tooMany } from "./refusals.ts";

/** Where a request came in, and from which address. */
export type Peer = { readonly face: Face; readonly address: string | undefined };

/** One door of the service. A face serves the routes it is given and no others. */
export type FaceRoute = {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Asks for the capability, where the face has one. */
  readonly guarded: boolean;
  readonly handle: (body: unknown, peer: Peer) => Promise<Answer> | Answer;
};

export type FaceOptions = {
  /** A loopback address; another one is refused while there is a capability. */
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** The secret of this start. */
  readonly capability: string;
  readonly jwk: BearerKey["jwk"];
  readonly isReady: () => boolean;
  /** The exchange and what stands beside it. */
  readonly routes: readonly FaceRoute[];
  readonly onEvent: (event: FaceEvent) => void;
};

/** For metrics and the log: the route as it was declared, never the address that came. */
export type FaceEvent = { readonly route: string; readonly status: number; readonly cause?: unknown };

export type OpenFace = { readonly port: number; readonly url: string; readonly close: () => Promise<void> };

export const MAX_BODY_BYTES = 64 * 1024;
const MAX_CONNECTIONS = 512;
const MAX_HEADER_BYTES = 8 * 1024;
const ARRIVE_MS = 10_000;
const IDLE_MS = 5_000;
const LOOPBACK: ReadonlySet<string> = new Set(["127.0.0.1", "::1"]);

/** Listens. Throws `failed-precondition` where it may not, or can't. */
export async function startFace(options: FaceOptions): Promise<OpenFace> {
  const { host, port } = options;
  if (!LOOPBACK.has(host)) throw unfit(`${host} is no loopback address`);
  if (options.capability.length < 32) throw unfit("a face needs a capability that can't be guessed");
  const app = fastify({
    logger: false,
    bodyLimit: MAX_BODY_BYTES,
    requestTimeout: ARRIVE_MS,
    connectionTimeout: ARRIVE_MS,
    keepAliveTimeout: IDLE_MS,
    http: { maxHeaderSize: MAX_HEADER_BYTES },
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 100 },
    return503OnClosing: true,
    clientErrorHandler: (_error, socket) => void socket.end(NO_HTTP),
    frameworkErrors: (error, _request, reply) => void send(reply, ofFramework(error.statusCode)),
  });
  app.server.maxConnections = MAX_CONNECTIONS;
  app.server.headersTimeout = IDLE_MS;
  // Text is not a body here: only JSON is.
  app.removeContentTypeParser("text/plain");
  await app.register(helmet);
  guard(app, options);
  route(app, options);
  try {
    await app.listen({ host, port });
  } catch (cause) {
    await app.close();
    throw new CotalError(ErrorCode.FailedPrecondition, `the exchange can't listen on ${host}:${port}`, {
      next: "stop what has the port, or set another one",
      cause,
    });
  }
  const address = app.server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const shown = host.includes(":") ? `[${host}]` : host;
  return { port: bound, url: `http://${shown}:${bound}`, close: () => app.close() };
}

const OPEN_GETS = { jwks: "/jwks", live: "/livez", ready: "/readyz" } as const;

function route(app: FastifyInstance, options: FaceOptions): void {
  const { jwk, isReady, routes } = options;
  const own: FaceRoute[] = [
    get(OPEN_GETS.jwks, () => ({ status: 200, body: { keys: [jwk] } })),
    get(OPEN_GETS.live, () => ({ status: 200, body: { status: "ok" } })),
    get(OPEN_GETS.ready, () =>
      isReady() ? { status: 200, body: { status: "ok" } } : { status: 503, body: { status: "failing" } },
    ),
  ];
  for (const { method, path, guarded, handle } of [...own, ...routes]) {
    app.route({
      method,
      url: path,
      config: { guarded },
      handler: async (request, reply) =>
        send(reply, await handle(request.body, { face: Face.Loopback, address: request.ip })),
    });
  }
}

function get(path: string, handle: FaceRoute["handle"]): FaceRoute {
  return { method: "GET", path, guarded: false, handle };
}

function guard(app: FastifyInstance, { capability, onEvent }: FaceOptions): void {
  const expected = digest(capability);
  app.addHook("onRequest", async (request, reply) => {
    const refusal = refused(request, expected);
    if (refusal !== undefined) await send(reply, refusal);
  });
  app.addHook("onResponse", (request, reply, done) => {
    onEvent({ route: request.routeOptions.url ?? "none", status: reply.statusCode });
    done();
  });
  app.setNotFoundHandler((_request, reply) => send(reply, NO_ROUTE));
  app.setErrorHandler((error, request, reply) => {
    const status = statusOf(error);
    if (status === undefined) onEvent({ route: request.routeOptions.url ?? "none", status: 500, cause: error });
    return send(reply, ofFramework(status));
  });
}

function refused(request: FastifyRequest, expected: Buffer): Answer | undefined {
  if (request.headers.origin !== undefined) return NO_ORIGIN;
  if (request.url.includes("?")) return NO_QUERY;
  if (!isGuarded(request.routeOptions.config)) return undefined;
  const given = request.headers[ExchangeHeader.Capability];
  return typeof given === "string" && timingSafeEqual(digest(given), expected) ? undefined : NO_CAPABILITY;
}

function isGuarded(config: object): boolean {
  return Reflect.get(config, "guarded") === true;
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

function send(reply: FastifyReply, { status, headers, body }: Answer): FastifyReply {
  return reply
    .code(status)
    .headers({ "cache-control": "no-store", ...headers })
    .send(body);
}

const { BadRequest, NotFound, PermissionDenied, Unauthenticated, Internal } = ErrorCode;

const NO_ROUTE = refuse({
  code: NotFound,
  reason: "no-route",
  error: "there is no such path here, or not for this method",
  next: `POST ${ExchangePath.Exchange}, or GET ${Object.values(OPEN_GETS).join(", ")}`,
});
const NO_ORIGIN = refuse({
  code: PermissionDenied,
  reason: "origin",
  error: "requests of web pages are not served",
  next: "ask from a program on this machine",
});
const NO_QUERY = refuse({
  code: BadRequest,
  reason: "query",
  error: "an address with a query is not served",
  next: "send everything in the body",
});
const NO_CAPABILITY = refuse({
  code: Unauthenticated,
  reason: "capability",
  error: "the request lacks this face's capability",
  next: "read the face's file again: each start of the service has another capability",
});

/** For bytes that are no HTTP, or come too slowly. */
const NO_HTTP = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const BY_STATUS: Readonly<Record<number, readonly [reason: string, error: string, next: string]>> = {
  400: ["malformed", "the request is no JSON that can be read", "send one JSON object"],
  404: ["no-route", "there is no such path here", "see the documentation of the exchange"],
  408: ["slow", "the request took too long to arrive", "send it again"],
  413: ["too-large", `a request has at most ${MAX_BODY_BYTES} bytes`, "send only what the route takes"],
  415: ["media-type", "only application/json is taken", "set content-type: application/json"],
};

/** What the framework refuses; it keeps its own words, which may quote the request. */
function ofFramework(status: number | undefined): Answer {
  if (status === 503) return tooMany(1, "busy");
  if (status === undefined || status >= 500) {
    return refuse({ code: Internal, reason: "internal", error: "the auth service failed", next: "its log says more" });
  }
  const known = BY_STATUS[status] === undefined ? 400 : status;
  const [reason, error, next] = BY_STATUS[known] ?? ["malformed", "the request is malformed", "send JSON"];
  return refuse({ code: BadRequest, reason, error, next }, known);
}

function statusOf(error: unknown): number | undefined {
  const status: unknown = typeof error === "object" && error !== null ? Reflect.get(error, "statusCode") : undefined;
  return typeof status === "number" && status >= 400 && status < 500 ? status : undefined;
}

function unfit(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `this face can't be served: ${why}`, {
    next: "listen on 127.0.0.1",
  });
}
