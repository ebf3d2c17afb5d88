/**
 * The edge of one space: the callout that the broker asks, and the faces that people and programs ask.
 *
 * Invariant: both work from one set of connect limits and one authority, those of this space.
 */
import type { Connection } from "../../shared/broker/connect.ts";
import type { ConnectionLimits } from "../../shared/protocol/chat/space-settings.ts";
import { bearerAudience } from "../../shared/trust/auth-folder.ts";
import { type CalloutEvent, DEFAULT_ANSWER_MS, serveCallout } from "./edge/callout.ts";
import { type LimitSizes, createConnectLimits } from "./edge/connect-limits.ts";
import type { AuthKeys } from "./keys.ts";
import { type FaceSettings, type FaceSource, type OpenFaces, openFaces } from "./open-faces.ts";
import type { Chat } from "./plane/chat/chat.ts";

export type EdgeSettings = FaceSettings & {
  readonly connects: number;
  readonly limits: LimitSizes;
  readonly onCallout: (event: CalloutEvent) => void;
};

export type EdgeSource = EdgeSettings & {
  readonly space: string;
  readonly keys: AuthKeys;
  readonly authority: FaceSource["authority"];
  readonly chat: Chat;
  /** A connection in the auth account, as the user that it names. */
  readonly callout: Connection;
  /** What the space allows a connection now (decision H67). */
  readonly connection: () => ConnectionLimits;
  readonly isReady: () => boolean;
};

export type OpenEdge = {
  /** Addresses of its faces. */
  readonly faces: OpenFaces["urls"];
  /** Settles when the broker asks no more. */
  readonly ended: Promise<unknown>;
  readonly stopIntake: () => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function openEdge(source: EdgeSource): Promise<OpenEdge> {
  const { space, keys, authority, callout, connection, connects, onCallout } = source;
  const { file } = keys;
  const scope = { issuer: file.issuer, audience: bearerAudience(space) };
  const limits = createConnectLimits(source.limits, () => performance.now());
  const served = await serveCallout({
    nc: callout.nc,
    space,
    by: { account: file.auth, signer: keys.authSigner, curves: keys.curves },
    bearer: { ...scope, keys: keys.bearerKeys },
    front: { account: file.front, signer: keys.frontSigner },
    connection,
    limits,
    authority,
    maxInFlight: connects,
    answerMs: DEFAULT_ANSWER_MS,
    now: Date.now,
    onEvent: onCallout,
  });
  try {
    const isReady = (): boolean => source.isReady() && callout.isUp();
    const faces = await openFaces({ ...source, scope, limits, isReady });
    return {
      faces: faces.urls,
      ended: served.ended,
      stopIntake: async () => {
        await faces.close();
        await served.stop();
      },
      close: faces.close,
    };
  } catch (error) {
    await served.stop();
    throw error;
  }
}
