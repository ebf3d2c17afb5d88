/**
 * The exchange (§10): a proof in, a bearer of this space out.
 *
 * In order: shape · proof · owner · limits · view (its face and proof, then the row, the scope and the claim) ·
 * enrolment (row, lifecycle, root credential, all durable) · bearer signed · ledger asked again · released.
 *
 * Invariants
 * 1. Nothing is written for a request that is refused before enrolment, and a view that is refused is
 *    refused before it.
 * 2. While an actor or its owner is limited the answer is 429, and counts against nothing (§10).
 * 3. On the public face a refused selection of a manager counts in its own window, not as probing (§10).
 * 4. No bearer outlives the root credential, its session, the proof of a `dm-reader`, or
 *    `MAX_BEARER_SECONDS`.
 */
import { CotalError, ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type Principal, type RandomBytes, dotForm, principal } from "../../../shared/protocol/base/principals.ts";
import type { ExchangeAnswer } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face, ProofKind, VIEWS, View, type ViewClaim } from "../../../shared/protocol/endpoint/views.ts";
import { type BearerClaims, type BearerSigner, MAX_BEARER_SECONDS, signBearer } from "../../../shared/trust/bearer.ts";
import { base64url } from "../../../shared/trust/nats-jwt.ts";
import { ownerToken } from "../../../shared/trust/owner.ts";
import type { Authority, SignIn } from "../plane/authority-type.ts";
import type { ConnectLimits } from "./connect-limits.ts";
import { type Asked, type AskedView, readExchange } from "./exchange-request.ts";
import type { Peer } from "./http.ts";
import { type InFlight, createInFlight } from "./in-flight.ts";
import { type DmReaderProofs, type IdentityProvider, ProofFault } from "./idp.ts";
import type { ProbingBudget } from "./probing-budget.ts";
import { type Answer, proofRefused, rateLimited, refusalOf, refuse, selectionRefused, tooMany } from "./refusals.ts";
import type { SelectionWindows } from "./selection-windows.ts";

export type ExchangeOptions = {
  readonly space: string;
  /** HMAC key of the owner tokens (architecture §8). */
  readonly ownerSecret: Uint8Array;
  readonly idp: IdentityProvider;
  /** Proofs that open one inbox; without them there is no `dm-reader`. */
  readonly dmReader?: DmReaderProofs;
  readonly authority: Pick<Authority, "enrol" | "check" | "proveAgent" | "chooseView">;
  /** The same set as the callout's of this space. */
  readonly limits: Pick<ConnectLimits, "limited">;
  readonly bearer: { readonly issuer: string; readonly audience: string; readonly signer: BearerSigner };
  /** The sentinel that clients present beside their bearer; no secret. */
  readonly sentinel: string;
  /** Where the broker is, for clients. */
  readonly servers?: readonly string[];
  /** Of all doors of this space. */
  readonly budget: ProbingBudget;
  readonly windows: SelectionWindows;
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

export const DEFAULT_MAX_EXCHANGES = 128;

/** `who` is set once a proof holds. */
type Settled = { readonly answer: Answer; readonly result: string; readonly who?: Principal; readonly cause?: unknown };

export function createExchange(options: ExchangeOptions): Exchange {
  const { clock, budget, onEvent, maxInFlight = DEFAULT_MAX_EXCHANGES } = options;
  const inFlight = createInFlight(maxInFlight);
  return async (body, peer) => {
    const began = clock();
    const settled: Settled = await inFlight.whole(() => exchange(body, peer.face, inFlight, options));
    const { answer, result, who, cause } = settled;
    const principal = who === undefined ? {} : { principal: dotForm(who) };
    onEvent({ result, milliseconds: clock() - began, ...principal, ...(cause === undefined ? {} : { cause }) });
    return budget(answer, peer, who !== undefined);
  };
}

async function exchange(body: unknown, face: Face, inFlight: InFlight, options: ExchangeOptions): Promise<Settled> {
  const asked = readExchange(body, options.space);
  if ("answer" in asked) return asked;
  const proved = await prove(asked, options);
  if ("answer" in proved) return proved;
  const { who } = proved;
  const over = options.limits.limited(who);
  if (over !== undefined) return { answer: rateLimited(over), result: "rate-limited", who };
  try {
    const settled: Settled = await inFlight.ofOwner(who.owner, () => granted(asked, face, proved, options));
    return { ...settled, who };
  } catch (cause) {
    return failed(cause, who);
  }
}

/** For somebody whose proof holds. */
async function granted(asked: Asked, face: Face, proved: Proved, options: ExchangeOptions): Promise<Settled> {
  const viewed = asked.view === undefined ? NO_VIEW : await choose(asked.view, face, proved, options);
  if ("answer" in viewed) return viewed;
  return { answer: await release(proved, viewed.claim, options), result: "ok" };
}

function failed(cause: unknown, who?: Principal): Settled {
  const error = toCotalError(cause);
  const unknown = error.code === ErrorCode.Internal ? { cause } : {};
  return { answer: refusalOf(error), result: error.code, ...(who === undefined ? {} : { who }), ...unknown };
}

/** Somebody whose proof holds. */
type Proved = {
  readonly who: Principal;
  readonly signIn: SignIn;
  /** What a `dm-reader`'s proof was made for, and until when (Unix seconds). */
  readonly dmReader?: { readonly lifecycleUid: string; readonly expires: number };
};

async function prove({ actor, presented }: Asked, options: ExchangeOptions): Promise<Proved | Settled> {
  const { authority, space, idp, dmReader, ownerSecret } = options;
  if (presented.kind === ProofKind.Agent) {
    const who = principal(presented.owner, actor);
    try {
      await authority.proveAgent(who, presented.secret);
    } catch (cause) {
      return failed(cause);
    }
    return { who, signIn: { by: "agent", secret: presented.secret } };
  }
  const person = (of: { readonly issuer: string; readonly subject: string }): Proved => ({
    who: principal(ownerToken(ownerSecret, of.issuer, of.subject), actor),
    signIn: { by: "person", ...of, name: actor },
  });
  if (presented.kind === ProofKind.Person) {
    const proof = await idp.verify(presented.idToken);
    return proof.ok ? person(proof.person) : unproved(proof.fault);
  }
  if (dmReader === undefined) return NO_DM_READER;
  const proof = await dmReader.verify(presented.idToken);
  if (!proof.ok) return unproved(proof.fault);
  // Made for one inbox: the same token opens no other actor's, and none of another space (§10).
  if (proof.actor !== actor || proof.space !== space) return unproved(ProofFault.Purpose);
  const { lifecycleUid, expires } = proof;
  // Within the tolerance of clocks it still verifies; a bearer that ends with it would be over at once.
  if (expires * 1000 <= options.now()) return unproved(ProofFault.Expired);
  return { ...person(proof.person), dmReader: { lifecycleUid, expires } };
}

const unproved = (fault: ProofFault): Settled => ({ answer: proofRefused(fault), result: `proof-${fault}` });

const NO_VIEW: { readonly claim: ViewClaim } = { claim: {} };

/** The claim of a view, or why it is not to be had: by its rule, then by the ledger. */
async function choose(
  asked: AskedView,
  face: Face,
  { who, signIn, dmReader }: Proved,
  { authority, windows }: ExchangeOptions,
): Promise<{ readonly claim: ViewClaim } | Settled> {
  const { faces, proof, unissued } = VIEWS[asked.view];
  if (!faces.includes(face)) return refusedView("view-face", PermissionDenied, "is not issued on this face");
  const shown = dmReader === undefined ? signIn.by : ProofKind.DmReader;
  if (!proof.includes(shown)) return refusedView("view-proof", PermissionDenied, "is not had with such a proof");
  if (unissued === true || asked.view === View.ManagerService) {
    return refusedView("view-unissued", ErrorCode.Unimplemented, "is not issued by this release");
  }
  const window = selectionWindow(asked, face, who, signIn.by);
  const wait = window === undefined ? 0 : windows.wait(...window);
  if (window !== undefined && wait > 0)
    return { answer: tooMany(wait, `selection-${window[1]}`), result: "selection-window" };
  const lifecycleUid = dmReader?.lifecycleUid ?? "";
  const request = asked.view === View.DmReader ? { view: asked.view, lifecycleUid } : asked;
  const viewed = await authority.chooseView(who, signIn.by, request);
  if (viewed.ok) return viewed;
  if (viewed.selection !== undefined) {
    if (window !== undefined) windows.refused(...window);
    return { answer: selectionRefused(viewed.selection, viewed.reason), result: viewed.selection };
  }
  throw new CotalError(viewed.code, viewed.reason, { next: "ask the operator of the space: cotal actor list" });

  function refusedView(reason: string, code: ErrorCode, why: string): Settled {
    const error = `the view ${asked.view} ${why}`;
    return {
      answer: refuse({ code, reason, error, next: "docs/security/profiles.md says who gets which view, and where" }),
      result: reason,
    };
  }
}

/** The window that a refused selection counts in: of a person as a whole, of one agent (§10). */
function selectionWindow(
  asked: AskedView,
  face: Face,
  who: Principal,
  by: SignIn["by"],
): Parameters<SelectionWindows["refused"]> | undefined {
  if (face !== Face.Public || asked.view !== View.ManagerCaller) return undefined;
  return [by === "person" ? who.owner : dotForm(who), asked.managerInstanceId === undefined ? "unpinned" : "pinned"];
}

async function release({ who, signIn, dmReader }: Proved, claim: ViewClaim, options: ExchangeOptions): Promise<Answer> {
  const { authority, bearer, now, random, sentinel, servers } = options;
  const { uid, credentialId, actor, rootExpires } = await authority.enrol(who, signIn);
  const iat = Math.floor(now() / 1000);
  const exp = Math.min(
    iat + MAX_BEARER_SECONDS,
    rootExpires,
    dmReader?.expires ?? Infinity,
    claim.view === View.SessionCaller ? claim.session.exp : Infinity,
  );
  const claims: BearerClaims = {
    iss: bearer.issuer,
    aud: bearer.audience,
    iat,
    exp,
    jti: base64url(random(16)),
    act: { ...who, lifecycleUid: uid, credentialId, name: actor.name, ...claim },
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

const { PermissionDenied } = ErrorCode;

const NO_DM_READER: Settled = {
  answer: refuse({
    code: ErrorCode.Unimplemented,
    reason: "view-unissued",
    error: "no audience is set whose tokens open an inbox",
    next: "set COTAL_IDP_DM_READER_AUDIENCE",
  }),
  result: "view-unissued",
};
