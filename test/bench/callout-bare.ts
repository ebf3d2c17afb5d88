/**
 * What the `callout` bench is compared with: a process that answers the broker's questions and signs
 * bearers, and asks nobody whether it should.
 *
 * The callout decodes, signs and answers, with the product's own native signatures and kept box key. What
 * it signs allows as much as an agent's JWT does, worked out once: what the broker does with a connection
 * costs both sides the same. The exchange checks the ID token and signs a bearer, on Node's HTTP server
 * alone.
 */
import { createServer } from "node:http";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { readAuthKeys } from "../../services/auth/keys.ts";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { encodeToken, principal } from "../../shared/protocol/base/principals.ts";
import { DEFAULT_LIMITS } from "../../shared/protocol/chat/space-settings.ts";
import { bearerAudience } from "../../shared/trust/auth-folder.ts";
import { MAX_BEARER_SECONDS, signBearer } from "../../shared/trust/bearer.ts";
import { allowResponse } from "../../shared/trust/callout.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import { ownerToken } from "../../shared/trust/owner.ts";
import { sentinelUser } from "../../shared/trust/sentinel.ts";
import {
  type Answer,
  bareUserJwt,
  connectResponder,
  nowSeconds,
  startResponder,
} from "../support/callout-responder.ts";
import { answerParent } from "./child.ts";

export type BareSetup = {
  readonly url: string;
  /** The auth service's folders, as it is told them. */
  readonly keys: string;
  readonly space: string;
  readonly issuer: string;
  readonly audience: string;
  readonly jwks: string;
};

export type BareUp = {
  readonly sentinel: string;
  /** Address of its exchange. */
  readonly exchange: string;
};

answerParent(async (setup: BareSetup): Promise<BareUp> => {
  const keys = readAuthKeys(setup.keys, setup.space);
  const by = { account: keys.file.auth, signer: keys.authSigner, curves: keys.curves };
  const front = { account: keys.file.front, signer: keys.frontSigner };
  const nc = await connectResponder(setup.url, keys.calloutUser, by);
  const grants = await agentGrants(front, setup.space);
  const answer: Answer = (request) =>
    allowResponse(request, by, bareUserJwt(request.userKey, front, grants), nowSeconds());
  await startResponder(nc, { by, answer, forgetful: true });
  return {
    sentinel: sentinelUser({ ...by, userKey: newKey("user").publicKey, nowSeconds: nowSeconds() }),
    exchange: await startExchange(setup, keys),
  };
});

const UID = encodeToken(Buffer.alloc(17), 26);
/** What an actor may do that was made by signing in. */
const ALL = [">"];

async function agentGrants(front: { readonly account: string; readonly signer: SigningKey }, space: string) {
  const { permissions } = await mintUser({
    profile: "agent",
    scope: {
      space,
      holder: { principal: principal(ownerToken(Buffer.alloc(32), "bare", "bare"), "agent_0"), uid: UID },
      inboxNonce: UID,
      allowSubscribe: ALL,
      allowPublish: ALL,
      ...NO_COMMANDS,
    },
    account: Account.Front,
    accountKey: front.account,
    signer: front.signer,
    userKey: newKey("user").publicKey,
    expires: nowSeconds() + MAX_BEARER_SECONDS,
    limits: DEFAULT_LIMITS.agent,
  });
  return permissions;
}

async function startExchange(setup: BareSetup, keys: ReturnType<typeof readAuthKeys>): Promise<string> {
  const { issuer, audience, space } = setup;
  const known = createRemoteJWKSet(new URL(setup.jwks));
  const bearerOf = async (text: string): Promise<string> => {
    const asked = JSON.parse(text) as { readonly idToken: string; readonly actor: string };
    const { payload } = await jwtVerify(asked.idToken, known, { issuer, audience, algorithms: ["RS256"] });
    const { actor } = asked;
    const owner = ownerToken(keys.ownerSecret, issuer, payload.sub ?? "");
    const act = { owner, actor, lifecycleUid: UID, credentialId: rootCredentialId(UID, 1), name: actor };
    const iat = nowSeconds();
    const life = { iat, exp: iat + MAX_BEARER_SECONDS };
    const claims = { iss: keys.file.issuer, aud: bearerAudience(space), ...life, jti: "j".repeat(22), act };
    return signBearer(claims, keys.bearer);
  };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.once("end", () => {
      const answer = (status: number, body: object): void =>
        void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
      bearerOf(Buffer.concat(chunks).toString()).then(
        (bearer) => answer(200, { bearer }),
        (thrown: unknown) => answer(500, { error: String(thrown) }),
      );
    });
  });
  await new Promise<void>((up) => void server.listen(0, "127.0.0.1", up));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
}
