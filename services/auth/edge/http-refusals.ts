/**
 * What a face answers before any route is asked, and what it makes of the framework's own refusals.
 *
 * Invariants
 * 1. The framework's words may quote the request; none of them leaves.
 * 2. Each says what became of the request: no route has heard of it, so nothing did (§10).
 */
import { ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { ExchangePath } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { type Answer, type RefusalBody, refuse, tooMany } from "./refusals.ts";

export const MAX_BODY_BYTES = 64 * 1024;

/** What anybody may ask of a face: the bearers' key, and whether this space is served here. */
export const OPEN_GETS = { jwks: "/jwks", live: "/livez", ready: "/readyz" } as const;

const { BadRequest, NotFound, PermissionDenied, Unauthenticated, Internal } = ErrorCode;

/** A refusal that no route has made. */
function unheard(body: RefusalBody, status?: number): Answer {
  return refuse({ ...body, outcome: Outcome.NotExecuted }, status);
}

export const NO_ROUTE = unheard({
  code: NotFound,
  reason: "no-route",
  error: "there is no such path here, or not for this method",
  next: `POST ${ExchangePath.Exchange}, or GET ${Object.values(OPEN_GETS).join(", ")}`,
});
export const NO_ORIGIN = unheard({
  code: PermissionDenied,
  reason: "origin",
  error: "requests of web pages are not served",
  next: "ask from a program",
});
export const NO_QUERY = unheard({
  code: BadRequest,
  reason: "query",
  error: "an address with a query is not served",
  next: "send everything in the body",
});
export const NO_CAPABILITY = unheard({
  code: Unauthenticated,
  reason: "capability",
  error: "the request lacks this face's capability",
  next: "read the face's file again: each start of the service has another capability",
});

/** For bytes that are no HTTP, or come too slowly. */
export const NO_HTTP = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const BY_STATUS: Readonly<Record<number, readonly [reason: string, error: string, next: string]>> = {
  400: ["malformed", "the request is no JSON that can be read", "send one JSON object"],
  404: ["no-route", "there is no such path here", "see the documentation of the exchange"],
  408: ["slow", "the request took too long to arrive", "send it again"],
  413: ["too-large", `a request has at most ${MAX_BODY_BYTES} bytes`, "send only what the route takes"],
  415: ["media-type", "only application/json is taken", "set content-type: application/json"],
};

/** What the framework refuses, by its status alone. */
export function ofFramework(status: number | undefined): Answer {
  if (status === 503) {
    const busy = tooMany(1, "busy");
    return { ...busy, body: { ...busy.body, outcome: Outcome.NotExecuted } };
  }
  if (status === undefined || status >= 500) {
    // A route has failed, who knows where.
    const outcome = Outcome.Unknown;
    const [error, next] = ["the auth service failed", "its log says more"] as const;
    return refuse({ code: Internal, reason: "internal", error, next, outcome });
  }
  const known = BY_STATUS[status] === undefined ? 400 : status;
  const [reason, error, next] = BY_STATUS[known] ?? ["malformed", "the request is malformed", "send JSON"];
  return unheard({ code: BadRequest, reason, error, next }, known);
}

/** The status that the framework blames a client with; `undefined` for every other error. */
export function statusOf(error: unknown): number | undefined {
  const status: unknown = typeof error === "object" && error !== null ? Reflect.get(error, "statusCode") : undefined;
  return typeof status === "number" && status >= 400 && status < 500 ? status : undefined;
}
