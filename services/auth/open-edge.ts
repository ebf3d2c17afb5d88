/**
 * The edge of one space: the callout that the broker asks, and the loopback exchange.
 *
 * Invariant: both work from one set of connect limits and one authority, those of this space.
 */
import { randomBytes } from "node:crypto";
import type { Connection } from "../../shared/broker/connect.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { DEFAULT_LIMITS } from "../../shared/protocol/chat/space-settings.ts";
import { ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { bearerAudience } from "../../shared/trust/auth-folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { sentinelUser } from "../../shared/trust/sentinel.ts";
import { createDevIssuer } from "./dev-issuer.ts";
import { type CalloutEvent, DEFAULT_ANSWER_MS, serveCallout } from "./edge/callout.ts";
import { DEFAULT_LIMIT_SIZES, type LimitSizes, createConnectLimits } from "./edge/connect-limits.ts";
import { type ExchangeEvent, createExchange } from "./edge/exchange.ts";
import { facePath, newCapability, removeFaceFile, writeFaceFile } from "./edge/face-file.ts";
import { type FaceEvent, startFace } from "./edge/http.ts";
import { type IdentityProvider, createIdentityProvider } from "./edge/idp.ts";
import type { AuthKeys } from "./keys.ts";
import type { Authority } from "./plane/authority-type.ts";

export type EdgeSettings = {
  readonly idp:
    | {
        readonly issuer: string;
        readonly audience: string;
        readonly jwks?: string;
        readonly algorithms: readonly string[];
      }
    | undefined;
  readonly devIssuer: boolean;
  readonly faceFile: string;
  readonly facePort: number;
  readonly clientServers: readonly string[] | undefined;
  readonly connects: number;
  readonly limits?: LimitSizes;
  readonly onCallout: (event: CalloutEvent) => void;
  readonly onExchange: (event: ExchangeEvent) => void;
  readonly onFace: (event: FaceEvent) => void;
};

export type EdgeSource = EdgeSettings & {
  readonly space: string;
  readonly keys: AuthKeys;
  readonly authority: Authority;
  /** A connection in the auth account, as the user that it names. */
  readonly callout: Connection;
  readonly isReady: () => boolean;
};

export type OpenEdge = {
  readonly exchange: string;
  /** Settles when the broker asks no more. */
  readonly ended: Promise<unknown>;
  readonly stopIntake: () => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function openEdge(source: EdgeSource): Promise<OpenEdge> {
  const { space, keys, authority, callout, connects, onCallout } = source;
  const { file, bearer } = keys;
  const scope = { issuer: file.issuer, audience: bearerAudience(space) };
  const limits = createConnectLimits(source.limits ?? DEFAULT_LIMIT_SIZES, () => performance.now());
  const served = await serveCallout({
    nc: callout.nc,
    space,
    by: { account: file.auth, signer: keys.authSigner, curve: keys.curve },
    bearer: { ...scope, key: bearer },
    front: { account: file.front, signer: keys.frontSigner },
    connection: DEFAULT_LIMITS.agent,
    limits,
    authority,
    maxInFlight: connects,
    answerMs: DEFAULT_ANSWER_MS,
    now: Date.now,
    onEvent: onCallout,
  });
  try {
    const face = await openFace(source, scope, limits);
    return {
      exchange: face.url,
      ended: served.ended,
      stopIntake: async () => {
        await face.close();
        await served.stop();
      },
      close: face.close,
    };
  } catch (error) {
    await served.stop();
    throw error;
  }
}

async function openFace(
  source: EdgeSource,
  scope: { readonly issuer: string; readonly audience: string },
  limits: ReturnType<typeof createConnectLimits>,
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const { space, keys, authority, callout, clientServers } = source;
  const { file, bearer } = keys;
  const { idp, routes } = await identity(source);
  const capability = newCapability();
  const exchange = createExchange({
    space,
    ownerSecret: keys.ownerSecret,
    idp,
    authority,
    limits,
    bearer: { ...scope, signer: bearer },
    sentinel: sentinelUser({
      account: file.auth,
      signer: keys.authSigner,
      userKey: newKey("user").publicKey,
      nowSeconds: Math.floor(Date.now() / 1000),
    }),
    ...(clientServers === undefined ? {} : { servers: clientServers }),
    now: Date.now,
    clock: () => performance.now(),
    random: randomBytes,
    onEvent: source.onExchange,
  });
  const face = await startFace({
    host: "127.0.0.1",
    port: source.facePort,
    capability,
    jwk: bearer.jwk,
    isReady: () => source.isReady() && callout.isUp(),
    routes: [{ method: "POST", path: ExchangePath.Exchange, guarded: true, handle: exchange }, ...routes],
    onEvent: source.onFace,
  });
  const path = facePath(source.faceFile, space);
  try {
    writeFaceFile(path, { url: face.url, capability });
  } catch (cause) {
    await face.close();
    throw new CotalError(ErrorCode.FailedPrecondition, `the file ${path} can't be written`, {
      next: "set COTAL_AUTH_FACE_FILE to a place that this process may write",
      cause,
    });
  }
  let closing: Promise<void> | undefined;
  return {
    url: face.url,
    close: () =>
      (closing ??= (async () => {
        removeFaceFile(path);
        await face.close();
      })()),
  };
}

/** Who proves who somebody is. */
async function identity({ idp, devIssuer, keys, space }: EdgeSource): Promise<{
  readonly idp: IdentityProvider;
  readonly routes: Awaited<ReturnType<typeof createDevIssuer>>["routes"];
}> {
  const own = idp === undefined ? undefined : createIdentityProvider({ ...idp, now: Date.now });
  if (devIssuer) {
    const dev = await createDevIssuer({ folder: keys.folder, space, now: Date.now });
    return { idp: dev.beside(own), routes: dev.routes };
  }
  if (own !== undefined) return { idp: own, routes: [] };
  throw new CotalError(ErrorCode.FailedPrecondition, "nothing proves who anybody is: there is no identity provider", {
    next: "set COTAL_IDP_ISSUER and COTAL_IDP_AUDIENCE; on a machine of your own, COTAL_AUTH_DEV_ISSUER=true",
  });
}
