/**
 * May this connection in, and with what (§9, §10)? From a request that has been read to a user JWT that
 * has its evidence; what is left is to sign the answer, ask once more, and release it.
 *
 * In order: bearer · connect limits · connection name · ledger, with the view, and what its capabilities open ·
 * JWT and its size · evidence and read list.
 *
 * Invariants
 * 1. A limit refuses before any read of the ledger; nothing is written before everything that can refuse
 *    has been asked (§10).
 * 2. The UID, the lists and the role come from the ledger, never from the client: of the client's own
 *    words only the nonce of its inbox is used (decision H61).
 * 3. The JWT ends with the bearer, or with its session, and with the root credential if that ends sooner.
 * 4. Anything but a clear yes is a denial with its reason. No fault of the ledger lets anybody in.
 */
import type { HolderScope } from "../../../shared/grants/client-profiles.ts";
import type { BuiltProfile } from "../../../shared/grants/matrix.ts";
import { Account } from "../../../shared/grants/row.ts";
import { CotalError, ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { CONN_ID } from "../../../shared/protocol/base/grammar.ts";
import { type Principal, principal } from "../../../shared/protocol/base/principals.ts";
import type { ConnectionLimits } from "../../../shared/protocol/chat/space-settings.ts";
import { View } from "../../../shared/protocol/endpoint/views.ts";
import type { ActorRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import {
  type BearerAct,
  type BearerClaims,
  BearerFault,
  type KnownBearerKey,
  verifyBearer,
} from "../../../shared/trust/bearer.ts";
import type { CalloutRequest } from "../../../shared/trust/callout.ts";
import { type MintRequest, mintUser } from "../../../shared/trust/jwt.ts";
import type { SigningKey } from "../../../shared/trust/keys.ts";
import type { Authority, Checked, Stamp } from "../plane/authority-type.ts";
import type { ConnectLimits } from "./connect-limits.ts";
import { type Denial, denials } from "./denials.ts";

export type AdmissionOptions = {
  readonly space: string;
  readonly bearer: {
    readonly issuer: string;
    readonly audience: string;
    readonly keys: readonly KnownBearerKey[];
  };
  /** The account that connections are placed in, and a signing key of it. */
  readonly front: { readonly account: string; readonly signer: SigningKey };
  /** Limits inside every JWT, as the space sets them now (decision H67). */
  readonly connection: () => ConnectionLimits;
  readonly limits: ConnectLimits;
  readonly authority: Pick<Authority, "check" | "recheck" | "recordConnect">;
  /** Epoch milliseconds. */
  readonly now: () => number;
  /** After this long nobody waits for the answer any more; nothing is written then. */
  readonly answerMs: number;
};

export type Verdict =
  | { readonly kind: "allow"; readonly userJwt: string; readonly principal: Principal; readonly stamp: Stamp }
  | {
      readonly kind: "deny";
      readonly denial: Denial;
      /** Of a bearer that this space has signed. */
      readonly principal?: Principal;
      /** What failed, for the log; never for the answer. */
      readonly cause?: unknown;
    };

type Denied = Extract<Verdict, { kind: "deny" }>;
type Granted = Extract<Checked, { ok: true }>;

export async function decide(request: CalloutRequest, options: AdmissionOptions): Promise<Verdict> {
  const began = options.now();
  const verified = verifyBearer(request.options.auth_token, {
    ...options.bearer,
    nowSeconds: Math.floor(began / 1000),
  });
  if (verified.claims === undefined) {
    const over = options.limits.chargeHost(request.client.host);
    return deny(over === undefined ? denials.bearer(verified.fault) : denials.limited(over));
  }
  const { claims } = verified;
  const who = principal(claims.act.owner, claims.act.actor);
  const over = options.limits.chargePrincipal(who);
  if (over !== undefined) return deny(denials.limited(over), who);
  if (!verified.ok) return deny(denials.bearer(verified.fault), who);
  try {
    return await admit(request, options, claims, began);
  } catch (cause) {
    return { ...deny(denialOf(cause), who), cause };
  }
}

async function admit(
  request: CalloutRequest,
  options: AdmissionOptions,
  { act, exp }: BearerClaims,
  began: number,
): Promise<Verdict> {
  const who = principal(act.owner, act.actor);
  const nonce = inboxNonce(request.options.name, act);
  if (nonce === undefined) return deny(denials.connectionName, who);
  const checked = await options.authority.check(act);
  if (!checked.ok) return deny(denials.refused(checked.code, checked.reason), who);

  const iat = Math.floor(options.now() / 1000);
  // A session's connection ends with its grant, not with the bearer that opened it (§10).
  const expires = Math.min(act.view === View.SessionCaller ? act.session.exp : exp, checked.rootExpires);
  if (expires <= iat) return deny(denials.bearer(BearerFault.Expired), who);
  const minted = await mint(request, options, checked, { act, nonce, iat, expires });
  if (typeof minted !== "string") return deny(minted, who);

  if (options.now() - began >= options.answerMs) return deny(denials.late, who);
  try {
    const connId = `${act.lifecycleUid}_${nonce}`;
    await options.authority.recordConnect(checked, { userKey: request.userKey, connId, iat, exp: expires });
  } catch (error) {
    if (error instanceof CotalError && error.code === ErrorCode.AlreadyExists) return deny(denials.replayed, who);
    throw error;
  }
  return { kind: "allow", userJwt: minted, principal: who, stamp: checked.stamp };
}

/** The nonce of `<uid>_<nonce>`; `undefined` for any other name, and for another lifecycle's. */
function inboxNonce(name: string | undefined, { lifecycleUid }: BearerAct): string | undefined {
  if (name === undefined || !CONN_ID.test(name)) return undefined;
  const [uid, nonce] = name.split("_");
  return uid === lifecycleUid ? nonce : undefined;
}

type Wanted = { readonly act: BearerAct; readonly nonce: string; readonly iat: number; readonly expires: number };

async function mint(
  request: CalloutRequest,
  { space, front, connection }: AdmissionOptions,
  { actor, opened }: Granted,
  { act, nonce, iat, expires }: Wanted,
): Promise<string | Denial> {
  const holder = { principal: principal(actor.owner, actor.actor), uid: actor.lifecycleUid };
  try {
    const { jwt } = await mintUser({
      ...profileOf(act, { ...actor, opened }, { space, holder, inboxNonce: nonce }),
      account: Account.Front,
      accountKey: front.account,
      signer: front.signer,
      userKey: request.userKey,
      issued: iat,
      expires,
      limits: connection(),
      name: actor.name,
    });
    return jwt;
  } catch (error) {
    if (error instanceof CotalError && error.code === ErrorCode.ResourceExhausted) {
      return denials.tooLarge(error.message);
    }
    throw error;
  }
}

/** The closed profile of a connection: the agent's, or its view's instead (§10). */
function profileOf(
  act: BearerAct,
  { allowSubscribe, allowPublish, role, capabilities, opened }: ActorRow & Pick<Granted, "opened">,
  scope: HolderScope,
): Pick<MintRequest<BuiltProfile>, "profile" | "scope"> {
  switch (act.view) {
    case undefined: {
      const lists = { allowSubscribe, allowPublish, ...(role === undefined ? {} : { role }) };
      return { profile: "agent", scope: { ...scope, ...lists, ...opened } };
    }
    case View.ManagerCaller:
      return { profile: act.view, scope: { ...scope, managerInstanceId: act.managerInstanceId, capabilities } };
    case View.SessionCaller:
      return { profile: act.view, scope: { ...scope, session: act.session } };
    case View.TransferWriter:
      return { profile: act.view, scope: { ...scope, transferWriter: act.transferWriter } };
    default:
      return { profile: act.view, scope };
  }
}

function deny(denial: Denial, who?: Principal): Denied {
  return { kind: "deny", denial, ...(who === undefined ? {} : { principal: who }) };
}

function denialOf(cause: unknown): Denial {
  const { code, message } = toCotalError(cause);
  // The message of a fault that is not ours may hold anything.
  return code === ErrorCode.Internal ? denials.internal : denials.refused(code, message);
}
