/**
 * Names of every stream, bucket and durable consumer of a space (§8, supplement H).
 *
 * No other file spells one. A per-lifecycle name always ends in the lifecycle UID, so a successor
 * never binds what its predecessor left (§8).
 */
import { ENDPOINT_LABEL, LIFECYCLE_UID, ROLE_TOKEN, SPACE_TOKEN } from "./grammar.ts";
import { badRequest } from "./errors.ts";
import { type Principal, dashForm, principal } from "./principals.ts";

/** The streams and buckets of one space. */
export function spaceNames(space: string) {
  if (!SPACE_TOKEN.test(space)) {
    throw badRequest(
      `${JSON.stringify(space.slice(0, 60))} is not a space name`,
      "use 1 to 32 letters, digits, _ or -",
    );
  }
  return {
    chat: `CHAT_${space}`,
    dm: `DM_${space}`,
    task: `TASK_${space}`,
    dlv: `DLV_${space}`,
    epj: `EPJ_${space}`,
    epf: `EPF_${space}`,
    epe: `EPE_${space}`,
    epr: `EPR_${space}`,
    eptRequest: `EPT_REQ_${space}`,
    ept: `EPT_${space}`,
    epw: `EPW_${space}`,
    epc: `EPC_${space}`,
    wfj: `WFJ_${space}`,
    bucket: {
      presence: `cotal_presence_${space}`,
      channels: `cotal_channels_${space}`,
      membership: `cotal_membership_${space}`,
      anycast: `cotal_anycast_${space}`,
      records: `cotal_records_${space}`,
      auth: `cotal_auth_${space}`,
      sessions: `cotal_sessions_${space}`,
      issued: `cotal_issued_${space}`,
      accepted: `cotal_accepted_${space}`,
      admission: `cotal_admission_${space}`,
      acl: `cotal_acl_${space}`,
      members: `cotal_members_${space}`,
      leases: `cotal_leases_${space}`,
    },
  } as const;
}
export type SpaceNames = ReturnType<typeof spaceNames>;
export type BucketKey = keyof SpaceNames["bucket"];

/** True for the three streams whose history limit an operator may set (§8). */
export function hasHistoryLimit(stream: string): boolean {
  return /^(?:CHAT|DM|DLV)_/.test(stream);
}

/** The stream behind a KV bucket. */
export function bucketStream(bucket: string): string {
  return `KV_${bucket}`;
}

/** The stream behind an object store. */
export function objectStream(bucket: string): string {
  return `OBJ_${bucket}`;
}

/** The transfer bucket of one manager instance (§8). */
export function transferBucket(space: string, instanceId: string): string {
  if (!LIFECYCLE_UID.test(instanceId)) throw badRequest("instance id is malformed");
  return `cotal_xfer_${space}_${instanceId}`;
}

/** A transcript as an object of a transfer bucket (§8), in the stock store's spelling of a name. */
export function transferObject(hex: string): string {
  if (!/^[0-9a-f]{64}$/.test(hex)) throw badRequest("a transcript is named by its SHA-256, in hex");
  return Buffer.from(`sha256:${hex}`).toString("base64url").padEnd(96, "=");
}

/** `dm_<owner>-<actor>-<uid>` (§8). */
export function dmDurable(p: Principal, uid: string): string {
  return lifecycleDurable("dm", p, uid);
}

/** `dlv_<owner>-<actor>-<uid>` (§8). */
export function dlvDurable(p: Principal, uid: string): string {
  return lifecycleDurable("dlv", p, uid);
}

/** `svc_<role>`: shared by the holders of a role, on purpose (§8). */
export function roleDurable(role: string): string {
  if (!ROLE_TOKEN.test(role)) {
    throw badRequest(`${JSON.stringify(role.slice(0, 80))} is no role`, "use 1 to 64 letters, digits, _ or -");
  }
  return `svc_${role}`;
}

/** `recw_<s>-<kind>`: what the writer of one kind of record reads (supplement E). */
export function recordWriterDurable(space: string, kind: "svc"): string {
  if (!SPACE_TOKEN.test(space)) throw badRequest("not a space name", "use 1 to 32 letters, digits, _ or -");
  return `recw_${space}-${kind}`;
}

/** The two stores that are enumerated through a consumer, as the plane's row names them (supplement E and I). */
export type ScannedStore = "ledger" | "records";

/** `scan_<s>-<store>`: the one name under which the authority plane enumerates a store (supplement E). */
export function scannerConsumer(space: string, store: ScannedStore): string {
  if (!SPACE_TOKEN.test(space)) throw badRequest("not a space name", "use 1 to 32 letters, digits, _ or -");
  return `scan_${space}-${store}`;
}

/** The stream behind it. */
export function scannedStream(space: string, store: ScannedStore): string {
  const { auth, records } = spaceNames(space).bucket;
  return bucketStream(store === "ledger" ? auth : records);
}

function lifecycleDurable(prefix: string, p: Principal, uid: string): string {
  if (!LIFECYCLE_UID.test(uid)) throw badRequest("lifecycle UID is malformed");
  return `${prefix}_${dashForm(principal(p.owner, p.actor))}-${uid}`;
}

/** The lease of whichever delivery daemon writes the membership feed (§8). */
export const FEED_DUTY = "membership";

/** All lease rows of one service. */
export function leaseGrant(service: string): string {
  if (!ENDPOINT_LABEL.test(service)) throw badRequest(`${JSON.stringify(service.slice(0, 80))} is no lease token`);
  return `lease.${service}.>`;
}

/** `lease.<service>.<duty>[.<n>]`: the key of a lease row in `cotal_leases_<s>` (decision H53). */
export function leaseKey(service: string, duty: string, n?: number): string {
  for (const token of [service, duty]) {
    if (!ENDPOINT_LABEL.test(token)) throw badRequest(`${JSON.stringify(token.slice(0, 80))} is no lease token`);
  }
  if (n !== undefined && (!Number.isSafeInteger(n) || n < 0)) throw badRequest("a lease number counts from 0");
  return n === undefined ? `lease.${service}.${duty}` : `lease.${service}.${duty}.${n}`;
}
