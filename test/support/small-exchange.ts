/**
 * The least that signs somebody in: an exchange over HTTP that knows a few actors, and a callout that
 * believes its bearers. Tests say what either of them answers next.
 *
 * Real bytes all the way (signed bearers, sealed callout, minted JWTs); what is missing is the ledger.
 */
import { randomBytes } from "node:crypto";
import { type FastifyInstance, fastify } from "fastify";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { CONN_ID } from "../../shared/protocol/base/grammar.ts";
import { drawLifecycleUid, principal } from "../../shared/protocol/base/principals.ts";
import { type BearerClaims, bearerSigner, newBearerJwk, signBearer, verifyBearer } from "../../shared/trust/bearer.ts";
import { type CalloutRequest, allowResponse, denyResponse } from "../../shared/trust/callout.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import type { CalloutSpace } from "./callout-broker.ts";
import { nowSeconds } from "./callout-responder.ts";

export const OWNER = `u_${"a".repeat(26)}`;
export const ID_TOKEN = "aWQ.dG9rZW4.c2VjcmV0";
const ISSUER = "cotal:main:test";
const AUDIENCE = "cotal:main";

/** A status with a body, in place of a bearer; `undefined` for an answer that never comes. */
export type Refusal = { readonly status: number; readonly body: object; readonly headers?: Record<string, string> };

export type SmallExchange = {
  readonly url: string;
  readonly capability: string;
  /** Seconds that the next bearers live. */
  life: number;
  /** Answers this instead of a bearer. */
  refusal: Refusal | undefined;
  /** The callout denies with this reason. */
  denial: string | undefined;
  /** What counts as proof; each one that was shown, and when, epoch ms. */
  believes: (idToken: string) => boolean;
  readonly shown: { readonly idToken: string; readonly at: number }[];
  /** Actors that neither of the two knows any more. */
  readonly revoked: Set<string>;
  /** When the exchange was asked, epoch ms. */
  readonly asked: number[];
  /** Every request that the callout saw: when, whose, under which key and name. */
  readonly seen: { readonly at: number; readonly token: string; readonly userKey: string; readonly name: string }[];
  /** Starts another lifecycle for the actor. */
  readonly renew: (actor: string) => void;
  readonly answer: (request: CalloutRequest) => Promise<Uint8Array>;
  readonly stop: () => Promise<void>;
  readonly start: () => Promise<void>;
};

export async function startSmallExchange(space: CalloutSpace): Promise<SmallExchange> {
  const signer = bearerSigner(newBearerJwk());
  const capability = randomBytes(24).toString("base64url");
  const uids = new Map<string, string>();
  const uidOf = (actor: string): string => {
    const uid = uids.get(actor) ?? drawLifecycleUid(randomBytes);
    uids.set(actor, uid);
    return uid;
  };
  const bearerOf = (actor: string): { readonly bearer: string; readonly claims: BearerClaims } => {
    const iat = nowSeconds();
    const claims: BearerClaims = {
      iss: ISSUER,
      aud: AUDIENCE,
      iat,
      exp: iat + exchange.life,
      jti: randomBytes(16).toString("hex"),
      act: {
        owner: OWNER,
        actor,
        lifecycleUid: uidOf(actor),
        credentialId: `r_${"b".repeat(26)}`,
        name: `The ${actor}`,
      },
    };
    return { bearer: signBearer(claims, signer), claims };
  };

  const build = (): FastifyInstance => {
    const app = fastify({ forceCloseConnections: true });
    app.post("/exchange", async (request, reply) => {
      exchange.asked.push(Date.now());
      if (request.headers["x-cotal-capability"] !== capability) {
        return reply.code(401).send({ code: "unauthenticated", error: "no capability", next: "use the face file" });
      }
      const { refusal } = exchange;
      if (refusal !== undefined)
        return reply
          .code(refusal.status)
          .headers(refusal.headers ?? {})
          .send(refusal.body);
      const { idToken, actor } = request.body as { readonly idToken: string; readonly actor: string };
      exchange.shown.push({ idToken, at: Date.now() });
      if (!exchange.believes(idToken)) {
        return reply.code(401).send({ code: "unauthenticated", error: `bad token ${idToken}`, next: "cotal login" });
      }
      if (exchange.revoked.has(actor)) {
        return reply.code(403).send({ code: "permission-denied", error: "the actor was revoked", next: "ask for it" });
      }
      const { bearer, claims } = bearerOf(actor);
      const { owner, lifecycleUid } = claims.act;
      return { bearer, expiresAt: claims.exp, owner, actor, lifecycleUid, sentinel: space.sentinel };
    });
    return app;
  };

  let app = build();
  const address = await app.listen({ host: "127.0.0.1", port: 0 });
  const exchange: SmallExchange = {
    url: address,
    capability,
    life: 600,
    refusal: undefined,
    denial: undefined,
    believes: (idToken) => idToken === ID_TOKEN,
    shown: [],
    revoked: new Set(),
    asked: [],
    seen: [],
    renew: (actor) => void uids.delete(actor),
    answer: async (request) => {
      const { auth_token: token = "", name = "" } = request.options;
      exchange.seen.push({ at: Date.now(), token, userKey: request.userKey, name });
      const deny = (reason: string): Uint8Array => denyResponse(request, space.by, reason, nowSeconds());
      if (exchange.denial !== undefined) return deny(exchange.denial);
      const scope = { issuer: ISSUER, audience: AUDIENCE, keys: [signer], nowSeconds: nowSeconds() };
      const verified = verifyBearer(token, scope);
      if (!verified.ok) return deny(verified.fault);
      const { act, exp } = verified.claims;
      const [uid, inboxNonce = ""] = name.split("_");
      if (!CONN_ID.test(name) || uid !== act.lifecycleUid) return deny("the name is no connId");
      if (exchange.revoked.has(act.actor)) return deny("the actor was revoked");
      const { jwt } = await mintUser({
        profile: "agent",
        scope: {
          space: "main",
          holder: { principal: principal(act.owner, act.actor), uid: act.lifecycleUid },
          inboxNonce,
          allowSubscribe: [">"],
          allowPublish: [">"],
          ...NO_COMMANDS,
        },
        account: Account.Front,
        accountKey: space.front.account,
        signer: space.front.signer,
        userKey: request.userKey,
        expires: exp,
        limits: { subs: 100, payload: 100_000 },
        name: act.name,
      });
      return allowResponse(request, space.by, jwt, nowSeconds());
    },
    stop: () => app.close(),
    start: async () => {
      app = build();
      await app.listen({ host: "127.0.0.1", port: Number(new URL(address).port) });
    },
  };
  return exchange;
}
