/**
 * A face of the auth service over HTTP (§10): the exchange, the bearers' public key, and whether this
 * space is served here.
 *
 * One face belongs to one space: it mints from that space's keys and ledger and from no others. What the
 * whole process says of itself (its health, its metrics) has another place: `shared/daemon/health-server.ts`.
 *
 * Invariants
 * 1. A loopback face listens on a loopback address only, or on one of its container (decision 30), and every
 *    route that does something asks for its capability. A public face has none: a proof is all that counts there.
 * 2. A request with an `Origin` comes from a web page and is refused, on either face, whatever it carries.
 * 3. JSON of at most 64 KiB, no query: a token never stands in an address.
 * 4. Every answer is JSON of ours, also for what no route takes and for bytes that are no HTTP; nothing
 *    of the request is repeated.
 * 5. The address of a peer is that of its connection. A forwarded one counts only when the connection
 *    comes from a proxy that is trusted by name.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { RequestListener } from "node:http";
import helmet from "@fastify/helmet";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { ExchangeHeader } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../../shared/protocol/endpoint/views.ts";
import type { BearerKey } from "../../../shared/trust/bearer.ts";
import { type FaceServer, faceServer } from "./face-server.ts";
import type { TlsEvent, TlsFiles } from "./face-tls.ts";
import {
  MAX_BODY_BYTES,
  NO_CAPABILITY,
  NO_HTTP,
  NO_ORIGIN,
  NO_QUERY,
  NO_ROUTE,
  OPEN_GETS,
  ofFramework,
  statusOf,
} from "./http-refusals.ts";
import type { Answer } from "./refusals.ts";

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

/** Whom a face is for, and what it asks of them. */
export type FaceKind =
  | {
      readonly face: typeof Face.Loopback;
      /** The secret of this start, or of all instances in containers. */
      readonly capability: string;
      /** `machine`: of a loopback address. `container`: of a port that is published to one. */
      readonly reach: "machine" | "container";
    }
  | {
      readonly face: typeof Face.Public;
      /** Left out where a proxy in front of it ends TLS. */
      readonly tls?: TlsFiles;
      /** Addresses and networks whose `X-Forwarded-For` is believed. */
      readonly proxies: readonly string[];
      readonly onTls: (event: TlsEvent) => void;
    };

export type FaceOptions = {
  readonly kind: FaceKind;
  /** An IP address. */
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** The setting that says where, for whoever finds the place taken. */
  readonly setting: string;
  readonly jwks: readonly BearerKey["jwk"][];
  readonly isReady: () => boolean;
  /** The exchange and what stands beside it. */
  readonly routes: readonly FaceRoute[];
  readonly onEvent: (event: FaceEvent) => void;
};

/** For metrics and the log: the route as it was declared, never the address that came. */
export type FaceEvent = {
  readonly route: string;
  readonly status: number;
  /** Of a refusal: one word of a closed list. */
  readonly reason?: string;
  readonly cause?: unknown;
};

export type OpenFace = { readonly port: number; readonly url: string; readonly close: () => Promise<void> };

const LOOPBACK: ReadonlySet<string> = new Set(["127.0.0.1", "::1"]);

/** Listens. Throws `failed-precondition` where it may not, or can't. */
export async function startFace(options: FaceOptions): Promise<OpenFace> {
  const { host, port, kind, setting } = options;
  demandFit(options);
  const tls = kind.face === Face.Public ? kind.tls : undefined;
  const { app, cut } = build(kind, tls);
  await app.register(helmet);
  guard(app, options);
  route(app, options);
  const close = async (): Promise<void> => {
    const closing = app.close();
    cut();
    await closing;
  };
  try {
    await app.listen({ host, port });
  } catch (cause) {
    await close();
    throw new CotalError(
      ErrorCode.FailedPrecondition,
      `the ${kind.face} exchange can't listen on ${host}:${port} (${codeOf(cause)})`,
      { next: `set ${setting} to an address of this machine that is free`, cause },
    );
  }
  const address = app.server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const shown = host.includes(":") ? `[${host}]` : host;
  return { port: bound, url: `${tls === undefined ? "http" : "https"}://${shown}:${bound}`, close };
}

function build(kind: FaceKind, tls: TlsFiles | undefined): { readonly app: FastifyInstance; readonly cut: () => void } {
  const { proxies, onTls } = kind.face === Face.Public ? kind : { proxies: [], onTls: () => undefined };
  let made: FaceServer | undefined;
  const app = fastify({
    serverFactory: (handle) => (made = faceServer(handle as RequestListener, tls, onTls)).server,
    logger: false,
    bodyLimit: MAX_BODY_BYTES,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 100 },
    return503OnClosing: true,
    clientErrorHandler: (_error, socket) => {
      if (!socket.destroyed) socket.end(NO_HTTP);
    },
    frameworkErrors: (error, _request, reply) => void send(reply, ofFramework(error.statusCode)),
    ...(proxies.length === 0 ? {} : { trustProxy: [...proxies] }),
  });
  // Text is not a body here: only JSON is.
  app.removeContentTypeParser("text/plain");
  return { app, cut: () => made?.cut() };
}

function route(app: FastifyInstance, options: FaceOptions): void {
  const { jwks, isReady, routes } = options;
  const { face } = options.kind;
  const own: FaceRoute[] = [
    get(OPEN_GETS.jwks, () => ({ status: 200, body: { keys: jwks } })),
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
      handler: async (request, reply) => send(reply, await handle(request.body, { face, address: request.ip })),
    });
  }
}

function get(path: string, handle: FaceRoute["handle"]): FaceRoute {
  return { method: "GET", path, guarded: false, handle };
}

function guard(app: FastifyInstance, { kind, onEvent }: FaceOptions): void {
  const expected = kind.face === Face.Loopback ? digest(kind.capability) : undefined;
  app.addHook("onRequest", async (request, reply) => {
    const refusal = refused(request, expected);
    if (refusal !== undefined) await send(reply, refusal);
  });
  app.addHook("onResponse", (request, reply, done) => {
    const reason = reasons.get(reply);
    const why = reason === undefined ? {} : { reason };
    onEvent({ route: request.routeOptions.url ?? "none", status: reply.statusCode, ...why });
    done();
  });
  app.setNotFoundHandler((_request, reply) => send(reply, NO_ROUTE));
  app.setErrorHandler((error, request, reply) => {
    const status = statusOf(error);
    if (status === undefined) onEvent({ route: request.routeOptions.url ?? "none", status: 500, cause: error });
    return send(reply, ofFramework(status));
  });
}

function refused(request: FastifyRequest, expected: Buffer | undefined): Answer | undefined {
  if (request.headers.origin !== undefined) return NO_ORIGIN;
  if (request.url.includes("?")) return NO_QUERY;
  if (expected === undefined || !isGuarded(request.routeOptions.config)) return undefined;
  const given = request.headers[ExchangeHeader.Capability];
  return typeof given === "string" && timingSafeEqual(digest(given), expected) ? undefined : NO_CAPABILITY;
}

function isGuarded(config: object): boolean {
  return Reflect.get(config, "guarded") === true;
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Of each refusal that is on its way: an operator reads no body. */
const reasons = new WeakMap<FastifyReply, string>();

function send(reply: FastifyReply, { status, headers, body }: Answer): FastifyReply {
  const reason: unknown = Reflect.get(body, "reason");
  if (typeof reason === "string") reasons.set(reply, reason);
  return reply
    .code(status)
    .headers({ "cache-control": "no-store", ...headers })
    .send(body);
}

function demandFit({ kind, host, setting }: FaceOptions): void {
  if (kind.face === Face.Public) return;
  const why =
    kind.reach === "container" || LOOPBACK.has(host)
      ? kind.capability.length < 32 && "a face needs a capability that can't be guessed"
      : `${host} is no loopback address`;
  if (why === false) return;
  throw new CotalError(ErrorCode.FailedPrecondition, `this face can't be served: ${why}`, {
    next: `listen on 127.0.0.1 (${setting})`,
  });
}

/** `EADDRINUSE` and its like. */
function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown fault";
}
