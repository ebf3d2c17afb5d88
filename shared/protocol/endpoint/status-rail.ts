/**
 * How a serving instance says how it is (§13.2, supplement A and E): on its own epoch-pinned rail
 * `P.epr.<endpoint>.<instanceId>.<epoch>.svc.status`, which only the record writer reads.
 *
 * Invariants
 * 1. Who speaks, and as which process, is the subject's to say: a serve credential holds that rail of one
 *    instance and epoch and no other. What the body says of the epoch is not read.
 * 2. A report has a bound, and what is no report is told from one before anything of it is used.
 */
import { z } from "zod";
import { hasProvenance } from "../base/headers.ts";
import { parseJson } from "../base/json.ts";
import { ROOT, spaceToken } from "../base/subjects.ts";
import { RegistrationStatus } from "../ledger/service-rows.ts";
import { joinSubject } from "./forms.ts";
import { parsePlaneSubject, planeSubject } from "./planes.ts";

/** The kind of record that an instance writes through this rail, and which half of it. */
const KIND = "svc";
const QUALIFIER = "status";

/** Bytes of one report. */
export const MAX_STATUS_BYTES = 4096;

/** Which process of which instance. */
export type StatusSource = { readonly endpoint: string; readonly instanceId: string; readonly epoch: number };

/** What it says: a status without the epoch, and nothing of what the record writer adds. */
export const StatusReport = z.looseObject({
  state: RegistrationStatus.shape.state,
  observedSpecRevision: RegistrationStatus.shape.observedSpecRevision,
});
export type StatusReport = z.infer<typeof StatusReport>;

/** Where one process of one instance says how it is. */
export function statusSubject(space: string, { endpoint, instanceId, epoch }: StatusSource): string {
  return planeSubject(space, { plane: "epr", endpoint, instanceId, epoch, kind: KIND, qualifier: QUALIFIER });
}

/** The reports of all instances: the one filter of the record writer. */
export function statusReports(space: string): string {
  return joinSubject([ROOT, spaceToken(space), "epr", "*", "*", "*", KIND, QUALIFIER]);
}

/** Who says it, by its subject; `undefined` for every other subject. */
export function parseStatusSubject(space: string, subject: string): StatusSource | undefined {
  const at = parsePlaneSubject(subject);
  if (at?.plane !== "epr" || at.space !== space || at.kind !== KIND || at.qualifier !== QUALIFIER) return undefined;
  const { endpoint, instanceId, epoch } = at;
  return { endpoint, instanceId, epoch };
}

export type ReadReport =
  | { readonly ok: true; readonly report: StatusReport }
  | { readonly ok: false; readonly why: string };

/** Reads a report. Never throws; nothing of what it refuses is repeated in the reason. */
export function readStatusReport(data: Uint8Array, headerNames: Iterable<string>): ReadReport {
  if (hasProvenance(headerNames)) return { ok: false, why: "a copy of something stored" };
  if (data.byteLength > MAX_STATUS_BYTES) return { ok: false, why: `more than ${MAX_STATUS_BYTES} bytes` };
  const value = parseJson(data);
  if (value === undefined) return { ok: false, why: "no JSON text" };
  const read = StatusReport.safeParse(value);
  if (read.success) return { ok: true, report: read.data };
  return { ok: false, why: `not a status, at ${read.error.issues[0]?.path.join(".") || "its root"}` };
}
