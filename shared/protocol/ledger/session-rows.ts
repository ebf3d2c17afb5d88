/**
 * The row of one session (§13.6, decision H2), in a bucket of its own that the auth service only reads.
 *
 * Closed: an unknown field is corruption of an authority row and refuses. Only `active` confers anything.
 */
import { z } from "zod";
import { ID_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN } from "../base/grammar.ts";
import { isEndpointName } from "../endpoint/grammar.ts";

const count = z.int().nonnegative();
const uid = z.string().regex(LIFECYCLE_UID);
const token = z.string().regex(PRINCIPAL_TOKEN);

export const SessionRow = z.strictObject({
  sessionId: z.string().regex(ID_TOKEN),
  endpoint: z.string().refine(isEndpointName),
  serving: z.strictObject({ instanceId: uid, epoch: count }),
  holder: z.strictObject({ owner: token, actor: token, lifecycleUid: uid }),
  /** The credentials of both sides, and which of them are known to be revoked. */
  credentials: z.strictObject({ holder: z.string(), serving: z.string() }),
  revoked: z.strictObject({ holder: z.boolean(), serving: z.boolean() }),
  state: z.enum(["issuing", "active", "closed", "expired", "superseded", "retired"]),
  /** Unix seconds. */
  exp: count,
  grantSig: z.string().min(1).max(512),
});
export type SessionRow = z.infer<typeof SessionRow>;

export const sessionKey = (sessionId: string): string => `session.${sessionId}`;

/** What the exchange reads of a presented session grant; the rest of it is its issuer's. */
export const PresentedGrant = z.looseObject({
  endpoint: z.string().refine(isEndpointName),
  sessionId: z.string().regex(ID_TOKEN),
  epoch: count,
  sig: z.string().min(1).max(512),
});
export type PresentedGrant = z.infer<typeof PresentedGrant>;
