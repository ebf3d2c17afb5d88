/**
 * The reservation of a lifecycle UID (§13.1): the ordinary one, and the one that is marked for service custody.
 *
 * Invariants
 * 1. Both are closed and told apart by `kind`; each names the UID that its key names.
 * 2. A marked one names an actor that nobody chooses: it is worked out of what it is assigned to.
 *
 * Nothing here makes a marked one: whoever reads an ordinary lifecycle asks `reservationOf` and refuses the other kind.
 */
import { z } from "zod";
import { canonicalDigest, digestHex } from "../base/canonical.ts";
import { ACCOUNT_NKEY, DIGEST, ID_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN, SPACE_TOKEN } from "../base/grammar.ts";
import { isEndpointName } from "../endpoint/names.ts";
import { UidRow } from "./rows.ts";

const uid = z.string().regex(LIFECYCLE_UID);
const token = z.string().regex(PRINCIPAL_TOKEN);

export type ServiceAssignment = {
  readonly accountPublicKey: string;
  readonly space: string;
  readonly owner: string;
  readonly endpoint: string;
  readonly instanceId: string;
};

/** What a digest of 256 bits takes at most in base 36. */
const ACTOR_DIGITS = 50;

/** `svc_` and the assignment's SHA-256 in base 36, of one length (§13.1). */
export function serviceActor(assigned: ServiceAssignment): string {
  const { accountPublicKey, space, owner, endpoint, instanceId } = assigned;
  const digest = digestHex(canonicalDigest([1, accountPublicKey, space, owner, endpoint, instanceId, "serve"]));
  return `svc_${BigInt(`0x${digest}`).toString(36).padStart(ACTOR_DIGITS, "0")}`;
}

/** `uid.<lifecycleUid>` of a lifecycle that serves under custody (§13.1). */
export const NativeServiceUid = z
  .strictObject({
    v: z.literal(1),
    kind: z.literal("native-service-uid"),
    native: z.strictObject({
      accountPublicKey: z.string().regex(ACCOUNT_NKEY),
      space: z.string().regex(SPACE_TOKEN),
      lifecycleUid: uid,
    }),
    assignment: z.strictObject({
      owner: token,
      actor: token,
      endpoint: z.string().refine(isEndpointName),
      instanceId: uid,
      duty: z.literal("serve"),
    }),
    creation: z.strictObject({
      operationId: z.string().regex(ID_TOKEN),
      requestDigest: z.string().regex(DIGEST),
    }),
  })
  .refine(
    ({ native, assignment }) => assignment.actor === serviceActor({ ...native, ...assignment }),
    "names an actor that is not its assignment's",
  );
export type NativeServiceUid = z.infer<typeof NativeServiceUid>;

/** All that the family `uid` may hold. */
export const ReservationRow = z.union([UidRow, NativeServiceUid]);
export type ReservationRow = z.infer<typeof ReservationRow>;

export function isMarked(row: ReservationRow): row is NativeServiceUid {
  return "kind" in row;
}

/** The UID that a reservation names; it must be its key's. */
export const reservedUid = (row: ReservationRow): string =>
  isMarked(row) ? row.native.lifecycleUid : row.lifecycleUid;
