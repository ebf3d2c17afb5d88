/**
 * The exchange (§10): a person's proof in, a bearer of this space out.
 *
 * In order: shape · proof · owner · limits · view · enrolment (row, lifecycle, root credential, all
 * durable) · bearer signed · ledger asked again · released.
 *
 * Invariants
 * 1. The owner is derived from the proof and the UID comes from the ledger; a request that names either,
 *    or anything else that an exchange does not take, is refused before the proof is looked at.
 * 2. Nothing is written for a request that is refused before enrolment.
 * 3. While an actor or its owner is limited the answer is 429, and counts against nothing (§10).
 * 4. Whoever keeps being refused is told to wait; a good proof is served all the same, or one client with
 *    a dead token would lock out everybody who shares its address (field case 20).
 * 5. No bearer outlives the root credential, or `MAX_BEARER_SECONDS`.
 */
import { z } from "zod";
import { CotalError, ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { CHAT_ACTOR, COMMAND_TOKEN, PRINCIPAL_TOKEN, SPACE_TOKEN } from "../../../shared/protocol/base/grammar.ts";
import { type Principal, type RandomBytes, dotForm, principal } from "../../../shared/protocol/base/principals.ts";
import type { ExchangeAnswer, ExchangeRequest } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { type BearerClaims, type BearerSigner, MAX_BEARER_SECONDS, signBearer } from "../../../shared/trust/bearer.ts";
import { base64url } from "../../../shared/trust/nats-jwt.ts";
import { ownerToken } from "../../../shared/trust/owner.ts";
import type { Authority } from "../plane/authority-type.ts";
import { type Buckets, type Rate, createBuckets } from "./buckets.ts";
import { type ConnectLimits, hostKey } from "./connect-limits.ts";
import type { Peer } from "./http.ts";
import type { IdentityProvider } from "./idp.ts";
import { type Answer, proofRefused, rateLimited, refusalOf, refuse, tooMany } from "./refusals.ts";

export type ExchangeOptions = {
  readonly space: string;
  /** HMAC key of the owner tokens (architecture §8). */
  readonly ownerSecret: Uint8Array;
  readonly idp: IdentityProvider;
  readonly authority: Pick<Authority, "enrol" | "check">;
  /** The same set as the callout's of this space. */
  readonly limits: Pick<ConnectLimits, "limited">;
  readonly bearer: { readonly issuer: string; readonly audience: string; readonly signer: BearerSigner };
  /** The sentinel that clients present beside their bearer; no secret. */
  readonly sentinel: string;
  /** Where the broker is, for clients. */
  readonly servers?: readonly string[];
  /** Refused requests of one address. */
  readonly refusals?: Rate;
  readonly maxInFlight?: number;
  /** Epoch milliseconds. */
  readonly now: () => number;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly random: RandomBytes;
  readonly onEvent: (event: ExchangeEvent) => void;
};

/** `result` is `ok` or the refusal's reason: a word of a closed list. */
export type ExchangeEvent = {
  readonly result: string;
  readonly principal?: string;
  readonly milliseconds: number;
  readonly cause?: unknown;
};

export type Exchange = (body: unknown, peer: Peer) => Promise<Answer>;

const DEFAULT_REFUSALS: Rate = { burst: 60, perMinute: 60 };
const DEFAULT_MAX_IN_FLIGHT = 128;
const MAX_PEERS = 10_000;

const Body = z.strictObject({
  space: z.string().regex(SPACE_TOKEN),
  idToken: z.string().min(1),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  view: z.string().regex(COMMAND_TOKEN).optional(),
});

type Settled = { readonly answer: Answer; readonly result: string; readonly who?: Principal; readonly cause?: unknown };

export function createExchange(options: ExchangeOptions): Exchange {
  const { clock, maxInFlight = DEFAULT_MAX_IN_FLIGHT } = options;
  const refused = createBuckets(options.refusals ?? DEFAULT_REFUSALS, MAX_PEERS, clock);
  let inFlight = 0;
  return async (body, peer) => {
    const began = clock();
    const settled = inFlight >= maxInFlight ? busy() : await counted();
    const milliseconds = clock() - began;
    const { answer, result, who, cause } = settled;
    const principal = who === undefined ? {} : { principal: dotForm(who) };
    options.onEvent({ result, milliseconds, ...principal, ...(cause === undefined ? {} : { cause }) });
    return budgeted(answer, refused, hostKey(peer.address));

    async function counted(): Promise<Settled> {
      inFlight += 1;
      try {
        return await exchange(body, options);
      } finally {
        inFlight -= 1;
      }
    }
  };
}

const busy = (): Settled => ({ answer: tooMany(1, "busy"), result: "busy" });

/** Nobody has proved to be anybody. A refusal of somebody known keeps its reason, however often (§10). */
const BLAMED: ReadonlySet<number> = new Set([400, 401]);

function budgeted(answer: Answer, refused: Buckets, peer: string): Answer {
  if (!BLAMED.has(answer.status)) return answer;
  const wait = refused.wait(peer);
  if (wait > 0) return tooMany(wait, "refused-too-often");
  refused.take(peer);
  return answer;
}

async function exchange(body: unknown, options: ExchangeOptions): Promise<Settled> {
  const request = read(body, options.space);
  if ("answer" in request) return request;
  const proof = await options.idp.verify(request.idToken);
  if (!proof.ok) return { answer: proofRefused(proof.fault), result: `proof-${proof.fault}` };
  const { issuer, subject } = proof.person;
  const who = principal(ownerToken(options.ownerSecret, issuer, subject), request.actor);
  const over = options.limits.limited(who);
  if (over !== undefined) return { answer: rateLimited(over), result: "rate-limited", who };
  if (request.view !== undefined) return { ...noView(), who };
  try {
    return { answer: await release(who, { issuer, subject, name: who.actor }, options), result: "ok", who };
  } catch (cause) {
    const error = toCotalError(cause);
    const unknown = error.code === ErrorCode.Internal ? { cause } : {};
    return { answer: refusalOf(error), result: error.code, who, ...unknown };
  }
}

function read(body: unknown, space: string): ExchangeRequest | Settled {
  const wrong = (reason: string, error: string, next: string): Settled => ({
    answer: refuse({ code: ErrorCode.BadRequest, reason, error, next }),
    result: reason,
  });
  const parsed = Body.safeParse(body);
  if (!parsed.success) {
    const extra = parsed.error.issues.some(({ code }) => code === "unrecognized_keys");
    return extra
      ? wrong(
          "unknown-field",
          "the request names something that an exchange does not take",
          "send space, idToken, actor and at most a view: owner and lifecycle are the service's to say",
        )
      : wrong(
          "malformed",
          "the request lacks a field, or one has the wrong form",
          'send {"space", "idToken", "actor"}; an actor is 1 to 64 letters, digits or underscores',
        );
  }
  const { view, ...request } = parsed.data;
  if (request.space !== space) {
    return wrong("other-space", "this exchange serves another space", "use the exchange of that space");
  }
  if (CHAT_ACTOR.test(request.actor)) {
    return wrong("chat-actor", "a chat session's actor is not chosen", "open a chat session, or use another actor");
  }
  return view === undefined ? request : { ...request, view };
}

function noView(): Settled {
  const answer = refuse({
    code: ErrorCode.Unimplemented,
    reason: "view",
    error: "this release issues no views",
    next: "leave the view out",
  });
  return { answer, result: "view" };
}

async function release(
  who: Principal,
  signIn: Parameters<Authority["enrol"]>[1],
  options: ExchangeOptions,
): Promise<Answer> {
  const { authority, bearer, now, random, sentinel, servers } = options;
  const { uid, credentialId, actor, rootExpires } = await authority.enrol(who, signIn);
  const iat = Math.floor(now() / 1000);
  const exp = Math.min(iat + MAX_BEARER_SECONDS, rootExpires);
  const claims: BearerClaims = {
    iss: bearer.issuer,
    aud: bearer.audience,
    iat,
    exp,
    jti: base64url(random(16)),
    act: { ...who, lifecycleUid: uid, credentialId, name: actor.name },
  };
  const signed = signBearer(claims, bearer.signer);
  // The bearer is made, and not yet released: what changed while it was made is seen now.
  const checked = await authority.check(claims.act);
  if (!checked.ok) {
    throw new CotalError(checked.code, checked.reason, { next: "ask the operator of the space: cotal actor list" });
  }
  const body: ExchangeAnswer = {
    bearer: signed,
    expiresAt: exp,
    ...who,
    lifecycleUid: uid,
    sentinel,
    ...(servers === undefined ? {} : { servers: [...servers] }),
  };
  return { status: 200, body };
}
