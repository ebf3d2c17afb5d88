/**
 * The edge with everything that a view rests on (§10): real ID tokens of an issuer whose keys are at hand,
 * managed agents with a secret, managers and sessions in the ledger, and a connect as the callout decides
 * it. No broker.
 */
import { createHash, randomBytes } from "node:crypto";
import { decode } from "@nats-io/jwt";
import { SignJWT, createLocalJWKSet, exportJWK, generateKeyPair } from "jose";
import { type Verdict, decide } from "../../services/auth/edge/admission.ts";
import { createConnectLimits } from "../../services/auth/edge/connect-limits.ts";
import type { ExchangeOptions } from "../../services/auth/edge/exchange.ts";
import { type IdpOptions, createDmReaderProofs, createIdentityProvider } from "../../services/auth/edge/idp.ts";
import type { Answer } from "../../services/auth/edge/refusals.ts";
import type { Grant } from "../../services/auth/plane/authority-type.ts";
import { type Principal, connId, drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { Face, Scope } from "../../shared/protocol/endpoint/views.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { type SessionRow, sessionKey } from "../../shared/protocol/ledger/session-rows.ts";
import { type BearerClaims, verifyBearer } from "../../shared/trust/bearer.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type EdgeRig, type EdgeRigOptions, edgeRig } from "./edge-rig.ts";
import { SYSTEM } from "./plane-parts.ts";

const ISSUER = "https://idp.test";
export const AUDIENCE = "cotal";
export const DM_AUDIENCE = "cotal-dm";
/** Owner of the space itself: the host's managers are its own. */
export const HOST = SYSTEM;
export const EVERY_SCOPE: readonly string[] = Object.values(Scope);

export type TokenClaims = Readonly<Record<string, unknown>>;

export type Registered = {
  readonly owner: string;
  readonly epoch?: number;
  /** What differs from a manager that is ready. */
  readonly gate?: object;
  readonly spec?: object;
  readonly status?: object;
};

export type ViewRig = EdgeRig & {
  readonly owner: string;
  /** An ID token of the issuer; a claim that is `undefined` is left out. */
  readonly token: (claims?: TokenClaims) => Promise<string>;
  /** A token for one inbox: of `actor` in its lifecycle. */
  readonly dmToken: (actor: string, lifecycle: string, claims?: TokenClaims) => Promise<string>;
  readonly grant: (actor: string, over?: Partial<Grant>) => Promise<ActorRow>;
  /** A managed agent, and its secret. */
  readonly agent: (
    actor: string,
    over?: Partial<Grant>,
  ) => Promise<{ readonly row: ActorRow; readonly secret: string }>;
  /** Enters a manager instance, ready unless told otherwise, and hands back its id. */
  readonly manager: (registered: Registered, instanceId?: string) => Promise<string>;
  readonly session: (row: Partial<SessionRow> & Pick<SessionRow, "holder" | "serving">) => SessionRow;
  readonly ask: (body: object, face?: Face) => Promise<Answer>;
  readonly askWith: (over: Partial<ExchangeOptions>) => ViewRig["ask"];
  /** What the exchange released; throws what it refused with. */
  readonly bearer: (body: object, face?: Face) => Promise<{ readonly bearer: string; readonly claims: BearerClaims }>;
  readonly claimsOf: (bearer: string) => BearerClaims;
  /** What the callout decides about this bearer, now. */
  readonly connect: (bearer: string) => Promise<Verdict>;
};

export async function viewRig(options: EdgeRigOptions = {}): Promise<ViewRig> {
  const { privateKey, publicKey } = await generateKeyPair("ES256");
  const keys = createLocalJWKSet({ keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256" }] });
  const now = (): number => rig.clock.now;
  const of = (audience: string): IdpOptions => ({ issuer: ISSUER, audience, keys, now });
  const idp = createIdentityProvider(of(AUDIENCE));
  const dmReader = createDmReaderProofs(of(DM_AUDIENCE));
  const rate = { burst: 1e6, perMinute: 1e6 };
  const rig = edgeRig({
    idp,
    policy: "granted",
    limits: createConnectLimits({ actor: rate, owner: rate, host: rate, keys: 1000 }, () => 0),
    ...options,
    plane: { isReservedOwner: (owner) => owner === HOST, ...options.plane },
  });
  const owner = rig.ownerOf("person");
  const seconds = (): number => Math.floor(rig.clock.now / 1000);
  const token = (claims: TokenClaims = {}): Promise<string> => {
    const whole = { iss: ISSUER, aud: AUDIENCE, sub: "person", iat: seconds(), exp: seconds() + 3600, ...claims };
    return new SignJWT(JSON.parse(JSON.stringify(whole)) as TokenClaims)
      .setProtectedHeader({ alg: "ES256", kid: "k1", typ: "JWT" })
      .sign(privateKey);
  };
  const grant = (actor: string, over: Partial<Grant> = {}): Promise<ActorRow> =>
    rig.authority.grant({
      owner,
      actor,
      name: actor,
      kind: "interactive",
      allowSubscribe: ["general"],
      allowPublish: ["general"],
      capabilities: [...EVERY_SCOPE],
      ...over,
    });
  const askWith = (over: Partial<ExchangeOptions>): ViewRig["ask"] => {
    const exchange = rig.exchangeWith({ dmReader, ...over });
    return (body, face = Face.Loopback) => exchange({ space: rig.space, ...body }, { face, address: "192.0.2.7" });
  };
  const ask = askWith({});
  const claimsOf = (bearer: string): BearerClaims => {
    const { issuer, audience, signer: key } = rig;
    const verified = verifyBearer(bearer, { issuer, audience, keys: [key], nowSeconds: seconds() });
    if (!verified.ok) throw new Error(verified.fault);
    return verified.claims;
  };
  const front = newKey("account");
  return {
    ...rig,
    exchange: (body, peer) => rig.exchangeWith({ dmReader })(body, peer),
    owner,
    token,
    dmToken: (actor, lifecycle, claims = {}) =>
      token({ aud: DM_AUDIENCE, purpose: "dm-reader", actor, lifecycle, space: rig.space, ...claims }),
    grant,
    agent: async (actor, over = {}) => {
      const secret = randomBytes(24).toString("hex");
      const secretDigest = createHash("sha256").update(secret).digest("hex");
      return { row: await grant(actor, { kind: "managed", secretDigest, ...over }), secret };
    },
    manager: async (registered, instanceId = drawLifecycleUid(randomBytes)) => {
      const { epoch = 1 } = registered;
      const spec = endpointKey.spec("manager", instanceId);
      rig.ledger.put("records", spec, { endpoint: "manager", owner: registered.owner, ...registered.spec });
      rig.ledger.put("records", endpointKey.status("manager", instanceId), {
        epoch,
        state: "ready",
        ...registered.status,
      });
      rig.ledger.put("auth", endpointKey.gate("manager", instanceId), {
        state: "open",
        generation: 1,
        processEpoch: epoch,
        registrationRevision: ((await rig.ledger.store().read("records", spec)) as { revision: number }).revision,
        nameAuthorityRevision: 1,
        principal: `${registered.owner}.manager`,
        ...registered.gate,
      });
      return instanceId;
    },
    session: (over) => {
      const row: SessionRow = {
        sessionId: "s".repeat(26),
        endpoint: "manager",
        credentials: { holder: "one", serving: "other" },
        revoked: { holder: false, serving: false },
        state: "active",
        exp: seconds() + 7200,
        grantSig: "the.signature",
        ...over,
      };
      rig.ledger.put("sessions", sessionKey(row.sessionId), row);
      return row;
    },
    ask,
    askWith,
    bearer: async (body, face) => {
      const answer = await ask(body, face);
      if (answer.status !== 200) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`);
      const bearer = String(Reflect.get(answer.body, "bearer"));
      return { bearer, claims: claimsOf(bearer) };
    },
    claimsOf,
    connect: (bearer) => {
      const { lifecycleUid } = claimsOf(bearer).act;
      return decide(
        {
          userKey: newKey("user").publicKey,
          server: { id: "N", name: "test", host: "127.0.0.1" },
          client: { host: "192.0.2.7" },
          options: { auth_token: bearer, name: connId(lifecycleUid, drawNonce(randomBytes)) },
          expires: seconds() + 2,
          sealedFor: undefined,
        },
        {
          space: rig.space,
          bearer: { issuer: rig.issuer, audience: rig.audience, keys: [rig.signer] },
          front: { account: front.publicKey, signer: front },
          connection: () => ({ subs: 1000, payload: 262_144 }),
          limits: rig.limits,
          authority: rig.authority,
          now,
          answerMs: 60_000,
        },
      );
    },
  };
}

export type MintedJwt = {
  readonly exp?: number;
  readonly profile: string | undefined;
  readonly pub: readonly string[];
  readonly sub: readonly string[];
};

/** What a verdict lets in; throws the line of a denial. */
export function minted(verdict: Verdict): MintedJwt {
  if (verdict.kind !== "allow") throw new Error(`${verdict.denial.reason}: ${verdict.denial.text}`);
  const { exp, nats } = decode<{
    readonly tags?: readonly string[];
    readonly pub?: { readonly allow?: readonly string[] };
    readonly sub?: { readonly allow?: readonly string[] };
  }>(verdict.userJwt);
  const profile = nats.tags?.find((tag) => tag.startsWith("profile:"))?.slice("profile:".length);
  return { ...(exp === undefined ? {} : { exp }), profile, pub: nats.pub?.allow ?? [], sub: nats.sub?.allow ?? [] };
}

/** The word of a denial and its line, or `let in`. */
export function deniedAs(verdict: Verdict): string {
  return verdict.kind === "allow" ? "let in" : `${verdict.denial.code}: ${verdict.denial.text}`;
}

export const reasonOf = ({ status, body }: Answer): string => `${status} ${String(Reflect.get(body, "reason"))}`;

/** A session's grant as its holder presents it. */
export const grantOf = ({ endpoint, sessionId, serving, grantSig }: SessionRow) => ({
  endpoint,
  sessionId,
  epoch: serving.epoch,
  sig: grantSig,
});

export const holderOf = ({ owner, actor, lifecycleUid }: Principal & { readonly lifecycleUid: string }) => ({
  owner,
  actor,
  lifecycleUid,
});
