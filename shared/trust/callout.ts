/**
 * Auth callout (§9, §10): reading the broker's authorization requests, and writing the answers.
 *
 * The broker asks on the auth account: a JWT, signed by the server, sealed for the account's curve key.
 * The answer is a JWT of the auth account that holds the connection's user JWT, or a reason why not. It
 * is made out to the one server and the one user key of the request, so it is worth nothing elsewhere.
 *
 * Invariants
 * 1. `readCalloutRequest` is total: any bytes end in a request or in a `RequestFault`.
 * 2. Where curve keys are given, a request in the clear is refused, and so is one whose seal belongs to
 *    another server than its signature. The server's key proves itself only: that the account was asked
 *    by a server at all rests on who may publish inside the auth account (nobody but its servers).
 * 3. A request is read for one account. What was asked of another space's account is refused.
 * 4. Our signature on an answer proves nothing to the broker: of a sealed one it checks the seal, of a
 *    plain one the account that it names, which anybody can write (both measured). What it rests on is
 *    that only the account's named users reach the reply subject, and that the user JWT inside is signed
 *    by a key of the front account. So answers are sealed, and the curve key is as secret as a signing key.
 * 5. The broker ignores `subs` and `payload` of a user JWT that came in an answer (measured).
 * 6. A request carries the client's bearer: it is never logged whole.
 */
import { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { CURVE_NKEY, SERVER_NKEY, USER_NKEY } from "../protocol/base/grammar.ts";
import { type SigningKey, isPublicKey } from "./keys.ts";
import { JWT_LEAD, JwtFault, signedJwt, verifiedClaims } from "./nats-jwt.ts";
import type { CurveKey } from "./xkey.ts";

/** Of every request, beside the subject it comes on. */
const REQUEST_AUDIENCE = "nats-authorization-request";

/** Room for the longest CONNECT line, escaped and encoded, with the names of a client's certificates. */
export const MAX_REQUEST_BYTES = 262_144;

/** A reason is for a server's log: one short line. */
export const MAX_REASON_LENGTH = 512;

/** How far a server's clock and ours may be apart, in seconds. A request lives for two. */
const CLOCK_TOLERANCE = 10;

/** Why bytes are no request to be answered. */
export const RequestFault = {
  ...JwtFault,
  /** It came in the clear, and the account has a curve key. */
  NotSealed: "not-sealed",
  /** Sealed by another key than its header names, or for another key than ours. */
  BadSeal: "bad-seal",
  WrongAudience: "wrong-audience",
  /** Asked of another account. */
  WrongAccount: "wrong-account",
  /** Signature, server id and curve key do not belong to one server. */
  WrongServer: "wrong-server",
  /** Nobody waits for the answer any more. */
  Expired: "expired",
} as const;
export type RequestFault = (typeof RequestFault)[keyof typeof RequestFault];

const nkey = (kind: RegExp) => z.string().refine((text) => isPublicKey(kind, text));

/** Unknown fields are dropped: later servers add some. */
const RequestClaims = z.object({
  aud: z.string(),
  sub: z.string(),
  exp: z.number(),
  nats: z.object({
    type: z.literal("authorization_request"),
    user_nkey: nkey(USER_NKEY),
    server_id: z.object({
      id: nkey(SERVER_NKEY),
      name: z.string(),
      host: z.string(),
      version: z.string().optional(),
      cluster: z.string().optional(),
      xkey: nkey(CURVE_NKEY).optional(),
    }),
    client_info: z.object({
      id: z.int().positive().optional(),
      host: z.string().optional(),
      name: z.string().optional(),
      user: z.string().optional(),
      kind: z.string().optional(),
      type: z.string().optional(),
    }),
    connect_opts: z.object({
      auth_token: z.string().optional(),
      jwt: z.string().optional(),
      name: z.string().optional(),
      lang: z.string().optional(),
      version: z.string().optional(),
    }),
  }),
});
type RequestClaims = z.infer<typeof RequestClaims>;

export type CalloutRequest = {
  /** The user key that the server drew for this connection; the user JWT is made out to it. */
  readonly userKey: string;
  readonly server: RequestClaims["nats"]["server_id"];
  /** What the server knows of the client: its address and number. `name` is the client's choice. */
  readonly client: RequestClaims["nats"]["client_info"];
  /** What the client presented: the sentinel (`jwt`) and its bearer (`auth_token`). Secret. */
  readonly options: RequestClaims["nats"]["connect_opts"];
  /** Unix seconds; the server has given up by then. */
  readonly expires: number;
  /** Which of the account's curve keys it came sealed for, and its answer is sealed with; none if it came in the clear. */
  readonly sealedFor: CurveKey | undefined;
};

export type ReadRequest =
  | { readonly ok: true; readonly request: CalloutRequest }
  | { readonly ok: false; readonly fault: RequestFault };

export type RequestScope = {
  /** Identity key of the auth account that was asked. */
  readonly account: string;
  /** Its curve keys: several while they are rotated; none only where the account has none. */
  readonly curves: readonly CurveKey[];
  readonly nowSeconds: number;
};

const refused = (fault: RequestFault): ReadRequest => ({ ok: false, fault });

/** Reads what came on the callout's subject; `sender` is the header that names the server's curve key. */
export function readCalloutRequest(bytes: Uint8Array, sender: string | undefined, scope: RequestScope): ReadRequest {
  if (bytes.length > MAX_REQUEST_BYTES) return refused(RequestFault.TooLarge);
  const opened = scope.curves.length === 0 ? { bytes, by: undefined } : unsealed(bytes, sender, scope.curves);
  if (typeof opened === "string") return refused(opened);
  const verified = verifiedClaims(opened.bytes, MAX_REQUEST_BYTES, SERVER_NKEY);
  if (!verified.ok) return refused(verified.fault);
  const parsed = RequestClaims.safeParse(verified.claims);
  if (!parsed.success) return refused(RequestFault.Malformed);
  const { aud, sub, exp, nats } = parsed.data;
  const sealedBy = opened.by === undefined ? nats.server_id.xkey : sender;
  if (aud !== REQUEST_AUDIENCE) return refused(RequestFault.WrongAudience);
  if (sub !== scope.account) return refused(RequestFault.WrongAccount);
  if (nats.server_id.id !== verified.issuer || nats.server_id.xkey !== sealedBy) {
    return refused(RequestFault.WrongServer);
  }
  if (exp + CLOCK_TOLERANCE <= scope.nowSeconds) return refused(RequestFault.Expired);
  return {
    ok: true,
    request: {
      userKey: nats.user_nkey,
      server: nats.server_id,
      client: nats.client_info,
      options: nats.connect_opts,
      expires: exp,
      sealedFor: opened.by,
    },
  };
}

type Unsealed = { readonly bytes: Uint8Array; readonly by: CurveKey };

function unsealed(bytes: Uint8Array, sender: string | undefined, curves: readonly CurveKey[]): Unsealed | RequestFault {
  if (sender === undefined || hasJwtLead(bytes)) return RequestFault.NotSealed;
  for (const by of curves) {
    const plain = by.open(sender, bytes);
    if (plain !== undefined) return { bytes: plain, by };
  }
  return RequestFault.BadSeal;
}

function hasJwtLead(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.subarray(0, JWT_LEAD.length)).toString("latin1") === JWT_LEAD;
}

/** Who answers: a signing key of the auth account that was asked, and the account's curve keys. */
export type Responder = {
  /** Identity key of the auth account. */
  readonly account: string;
  readonly signer: SigningKey;
  readonly curves: readonly CurveKey[];
};

/** Lets the connection in with this user JWT, which is made out to `request.userKey`. */
export function allowResponse(request: CalloutRequest, by: Responder, userJwt: string, nowSeconds: number): Uint8Array {
  return response(request, by, { jwt: userJwt }, nowSeconds);
}

/** Denies the connection. The reason reaches the server's log and never the client (measured). */
export function denyResponse(request: CalloutRequest, by: Responder, reason: string, nowSeconds: number): Uint8Array {
  return response(request, by, { error: oneLine(reason) }, nowSeconds);
}

function response(
  request: CalloutRequest,
  { account, signer }: Responder,
  verdict: { readonly jwt: string } | { readonly error: string },
  nowSeconds: number,
): Uint8Array {
  const text = signedJwt(
    {
      sub: request.userKey,
      aud: request.server.id,
      iat: nowSeconds,
      nats: {
        ...verdict,
        ...(signer.publicKey === account ? {} : { issuer_account: account }),
        type: "authorization_response",
      },
    },
    signer,
  );
  const bytes = Buffer.from(text);
  const { sealedFor } = request;
  if (sealedFor === undefined) return bytes;
  const { xkey } = request.server;
  if (xkey === undefined) {
    throw new CotalError(ErrorCode.FailedPrecondition, "the request names no curve key to seal the answer for", {
      outcome: Outcome.NotExecuted,
      next: "give the auth account its curve key (xkey) in its claims",
    });
  }
  return sealedFor.seal(xkey, bytes);
}

const CONTROL = /[\p{Cc}\u2028\u2029]+/gu;

/** An empty reason would be an answer that the broker can't read. */
function oneLine(reason: string): string {
  const line = reason.slice(0, MAX_REASON_LENGTH).toWellFormed().replace(CONTROL, " ").trim();
  return line === "" ? "denied" : line;
}
