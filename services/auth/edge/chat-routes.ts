/**
 * `POST /chat-session/open|bearer|retire` (§10): a person's doors to chat sessions.
 *
 * In order, at each of them: shape · proof · owner · limits · the session. To open one asks for a proof
 * that is fresh; a bearer and a retirement ask for the holder's secret beside it.
 *
 * Invariants
 * 1. The owner is derived from the proof; a request that names one, or an actor, a UID, a scope, a view or
 *    a profile, is refused before its proof is looked at.
 * 2. Every refusal says what became of the request: `not-executed`, `executed` or `unknown`.
 * 3. A holder's secret is hashed at once, and only its hash goes further.
 */
import { createHash } from "node:crypto";
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, principal } from "../../../shared/protocol/base/principals.ts";
import {
  type ChatOpenAnswer,
  ChatHolderRequest,
  ChatOpenRequest,
  type ChatRetireAnswer,
  ChatSessionPath,
} from "../../../shared/protocol/endpoint/chat-session-shapes.ts";
import type { ExchangeAnswer } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { CHAT_PARENT } from "../../../shared/protocol/ledger/chat-rows.ts";
import { ownerToken } from "../../../shared/trust/owner.ts";
import type { Chat } from "../plane/chat/chat.ts";
import type { ConnectLimits } from "./connect-limits.ts";
import type { FaceRoute } from "./http.ts";
import { type InFlight, createInFlight } from "./in-flight.ts";
import type { IdentityProvider } from "./idp.ts";
import type { ProbingBudget } from "./probing-budget.ts";
import { type Answer, proofRefused, rateLimited, refusalOf, refuse } from "./refusals.ts";

export type ChatRouteOptions = {
  readonly space: string;
  readonly ownerSecret: Uint8Array;
  readonly idp: IdentityProvider;
  readonly chat: Chat;
  /** The same set as the callout's of this space. */
  readonly limits: Pick<ConnectLimits, "limited">;
  readonly budget: ProbingBudget;
  readonly sentinel: string;
  readonly servers?: readonly string[];
  /** How old the proof may be that opens a session. */
  readonly freshSeconds: number;
  readonly maxInFlight?: number;
  /** Epoch milliseconds. */
  readonly now: () => number;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly onEvent: (event: ChatEvent) => void;
};

/** `result` is `ok` or a word of a closed list. */
export type ChatEvent = {
  readonly route: ChatSessionPath;
  readonly result: string;
  readonly principal?: string;
  readonly milliseconds: number;
  readonly cause?: unknown;
};

/** Where the openings of one owner queue, few are enough. */
const DEFAULT_MAX_CHATS = 64;

/** Somebody whose proof holds. */
type Person = { readonly owner: string; readonly proofExpires: number };
type Done = { readonly body: object; readonly who: Principal };

/** What every request has. */
type Common = Pick<ChatHolderRequest, "space" | "idToken">;

/** One door: its request, whether its proof must be fresh, and what it does. */
type Door<R> = {
  readonly path: ChatSessionPath;
  readonly request: z.ZodType<R>;
  readonly takes: string;
  readonly fresh: boolean;
  /** Whose limits count. */
  readonly who: (request: R, owner: string) => Promise<Principal>;
  readonly run: (request: R, person: Person) => Promise<Done>;
};

type Settled = { readonly answer: Answer; readonly result: string; readonly who?: Principal; readonly cause?: unknown };

export function chatRoutes(options: ChatRouteOptions): readonly FaceRoute[] {
  const inFlight = createInFlight(options.maxInFlight ?? DEFAULT_MAX_CHATS);
  return [
    route(openDoor(options), options, inFlight),
    route(bearerDoor(options), options, inFlight),
    route(retireDoor(options), options, inFlight),
  ];
}

function openDoor({ chat }: ChatRouteOptions): Door<ChatOpenRequest> {
  return {
    path: ChatSessionPath.Open,
    request: ChatOpenRequest,
    takes: "space, idToken, holderHash, and at most name, allowSubscribe, allowPublish and lifeSeconds",
    fresh: true,
    // It acts on the person's own grant, and has no actor yet.
    who: (_, owner) => Promise.resolve(principal(owner, CHAT_PARENT)),
    run: async ({ holderHash, lifeSeconds, ...asked }, { owner }) => {
      const wanted = { name: asked.name, allowSubscribe: asked.allowSubscribe, allowPublish: asked.allowPublish };
      const opened = await chat.open({ owner, holderHash, lifeSeconds, ...wanted });
      const { actor, lifecycleUid, name, exp, allowSubscribe, allowPublish } = opened;
      const body: ChatOpenAnswer = {
        owner,
        actor,
        lifecycleUid,
        name,
        allowSubscribe,
        allowPublish,
        expiresAt: exp,
      };
      return { body, who: opened };
    },
  };
}

function bearerDoor({ chat, sentinel, servers }: ChatRouteOptions): Door<ChatHolderRequest> {
  return {
    path: ChatSessionPath.Bearer,
    ...ofHolder(chat),
    run: async ({ holderSecret }, { owner, proofExpires }) => {
      const holder = await chat.holder({ owner, holderHash: hashOf(holderSecret) });
      const { bearer, expires } = await chat.bearer(holder, proofExpires);
      const { actor, lifecycleUid } = holder;
      const body: ExchangeAnswer = {
        bearer,
        expiresAt: expires,
        owner,
        actor,
        lifecycleUid,
        sentinel,
        ...(servers === undefined ? {} : { servers: [...servers] }),
      };
      return { body, who: holder };
    },
  };
}

function retireDoor({ chat }: ChatRouteOptions): Door<ChatHolderRequest> {
  return {
    path: ChatSessionPath.Retire,
    ...ofHolder(chat),
    run: async ({ holderSecret }, { owner }) => {
      const { holder, remains } = await chat.retire({ owner, holderHash: hashOf(holderSecret) });
      const { actor, lifecycleUid } = holder;
      const body: ChatRetireAnswer = {
        owner,
        actor,
        lifecycleUid,
        settled: remains === undefined,
        ...(remains === undefined ? {} : { remains }),
      };
      return { body, who: holder };
    },
  };
}

function ofHolder(chat: Chat) {
  return {
    request: ChatHolderRequest,
    takes: "space, idToken and holderSecret, and nothing else",
    fresh: false,
    who: ({ holderSecret }: ChatHolderRequest, owner: string): Promise<Principal> =>
      chat.holder({ owner, holderHash: hashOf(holderSecret) }),
  };
}

const hashOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");

function route<R extends Common>(door: Door<R>, options: ChatRouteOptions, inFlight: InFlight): FaceRoute {
  const { clock, budget, onEvent } = options;
  return {
    method: "POST",
    path: door.path,
    guarded: true,
    handle: async (body, peer) => {
      const began = clock();
      const settled: Settled = await inFlight.whole(() => serve(body, door, inFlight, options));
      const { answer, result, who, cause } = settled;
      const of = who === undefined ? {} : { principal: dotForm(who) };
      onEvent({
        route: door.path,
        result,
        milliseconds: clock() - began,
        ...of,
        ...(cause === undefined ? {} : { cause }),
      });
      return told(budget(answer, peer, who !== undefined));
    },
  };
}

/** What a refusal does not say itself: it was made before anything was done. */
function told(answer: Answer): Answer {
  if (answer.status === 200) return answer;
  return { ...answer, body: { outcome: Outcome.NotExecuted, ...answer.body } };
}

async function serve<R extends Common>(
  body: unknown,
  door: Door<R>,
  inFlight: InFlight,
  options: ChatRouteOptions,
): Promise<Settled> {
  const asked = read(body, door, options.space);
  if ("answer" in asked) return asked;
  const proof = await options.idp.verify(asked.request.idToken);
  if (!proof.ok) return { answer: proofRefused(proof.fault), result: `proof-${proof.fault}` };
  const { issuer, subject } = proof.person;
  const owner = ownerToken(options.ownerSecret, issuer, subject);
  const cli = principal(owner, CHAT_PARENT);
  if (door.fresh && options.now() / 1000 - proof.issued > options.freshSeconds) {
    return { ...stale(options.freshSeconds), who: cli };
  }
  const person = { owner, proofExpires: proof.expires };
  const settled: Settled = await inFlight.ofOwner(owner, () => granted(asked.request, door, person, options));
  return { who: cli, ...settled };
}

/** For somebody whose proof holds. */
async function granted<R>(
  request: R,
  door: Door<R>,
  person: Person,
  { limits }: Pick<ChatRouteOptions, "limits">,
): Promise<Settled> {
  let who = principal(person.owner, CHAT_PARENT);
  try {
    who = await door.who(request, person.owner);
    const over = limits.limited(who);
    if (over !== undefined) return { answer: rateLimited(over), result: "rate-limited", who };
    const done = await door.run(request, person);
    return { answer: { status: 200, body: done.body }, result: "ok", who: done.who };
  } catch (cause) {
    return failed(cause, who);
  }
}

/** A failure that does not say what became of the request leaves it open. */
function failed(cause: unknown, who: Principal): Settled {
  const error = toCotalError(cause);
  const { code, message, next, outcome = Outcome.Unknown } = error;
  const answer = refusalOf(new CotalError(code, message, { outcome, ...(next === undefined ? {} : { next }) }));
  return { answer, result: code, who, ...(code === ErrorCode.Internal ? { cause } : {}) };
}

function read<R extends Common>(
  body: unknown,
  { request, takes }: Door<R>,
  space: string,
): { readonly request: R } | Settled {
  const parsed = request.safeParse(body);
  if (!parsed.success) {
    const extra = parsed.error.issues.some(({ code }) => code === "unrecognized_keys");
    return extra
      ? wrong("unknown-field", "the request names something that this route does not take", `send ${takes}`)
      : wrong("malformed", "the request lacks a field, or one has the wrong form", `send ${takes}`);
  }
  if (parsed.data.space !== space) {
    return wrong("other-space", "this exchange serves another space", "use the exchange of that space");
  }
  return { request: parsed.data };
}

function wrong(reason: string, error: string, next: string): Settled {
  return { answer: refuse({ code: ErrorCode.BadRequest, reason, error, next }), result: reason };
}

function stale(seconds: number): Settled {
  const answer = refuse({
    code: ErrorCode.Unauthenticated,
    reason: "proof-stale",
    error: `a chat session is opened with an identity token of the last ${seconds} s`,
    next: "sign in again: cotal login",
  });
  return { answer, result: "proof-stale" };
}
