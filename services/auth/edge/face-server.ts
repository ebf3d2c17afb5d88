/**
 * The HTTP server under a face, over TLS or plain: what anybody may cost who has only connected.
 *
 * Invariants
 * 1. Bounded: connections, the time of a TLS handshake, of the headers, of a whole request, of silence.
 *    The bounds are looked at every second: whoever sends a byte now and then gains nothing by it.
 * 2. A connection that is no TLS, or no HTTP, ends; nobody's bytes come back.
 * 3. An end cuts every connection, also one in its handshake, which the server itself does not count.
 */
import { type RequestListener, type Server, createServer } from "node:http";
import { type Server as SecureServer, createServer as createSecureServer } from "node:https";
import type { Socket } from "node:net";
import { type TlsEvent, type TlsFiles, openPair } from "./face-tls.ts";

export const ARRIVE_MS = 10_000;
const IDLE_MS = 5_000;
const LOOK_MS = 1_000;
const MAX_CONNECTIONS = 512;
const MAX_HEADER_BYTES = 8 * 1024;

const BOUNDS = {
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: IDLE_MS,
  requestTimeout: ARRIVE_MS,
  keepAliveTimeout: IDLE_MS,
  connectionsCheckingInterval: LOOK_MS,
} as const;

export type FaceServer = {
  readonly server: Server | SecureServer;
  /** Cuts what is open, and looks at the certificate no more. */
  readonly cut: () => void;
};

/** Throws `failed-precondition` for a certificate that can't be served. */
export function faceServer(
  handle: RequestListener,
  tls: TlsFiles | undefined,
  onTls: (event: TlsEvent) => void,
): FaceServer {
  if (tls === undefined) return bounded(createServer(BOUNDS, handle), () => undefined);
  const { pair, keep } = openPair(tls, onTls);
  const server = createSecureServer({ ...BOUNDS, ...pair, handshakeTimeout: ARRIVE_MS }, handle);
  // Before the server's own listener, which would answer in plain text.
  server.prependListener("tlsClientError", (_error, socket) => socket.destroy());
  return bounded(server, keep(server));
}

function bounded(server: Server | SecureServer, end: () => void): FaceServer {
  const open = new Set<Socket>();
  server.maxConnections = MAX_CONNECTIONS;
  server.setTimeout(ARRIVE_MS);
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  return {
    server,
    cut: () => {
      end();
      for (const socket of open) socket.destroy();
    },
  };
}
