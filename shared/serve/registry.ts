/**
 * What serves in this space, a page of the service records at a time (supplement A): for the delivery service's
 * `endpoints`, and for the provisioner's check.
 *
 * A listing, not a proof: an instance that was killed stands here as it last was. Who wants to know asks it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../protocol/base/json.ts";
import { leaderLast, rowPage } from "../broker/reads.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import type { ShownEndpoint } from "../protocol/endpoint/reads-shapes.ts";
import { parseRecordKey, recordFilter, recordKey } from "../protocol/ledger/record-kinds.ts";
import { RegistrationSpec, RegistrationStatus } from "../protocol/ledger/service-rows.ts";

/** Whose registry: a connection into the store of a space. */
type Registry = { readonly store: NatsConnection; readonly space: string };

const PAGE = 200;

export type RegistryPage = {
  readonly endpoints: ShownEndpoint[];
  /** Absent on the last page. */
  readonly cursor?: number;
};

/** A page of at most `maxBytes` of JSON; its first entry is there whatever its size. */
export async function registryPage(
  { store, space }: Registry,
  cursor: number | undefined,
  maxBytes: number,
): Promise<RegistryPage> {
  const page = await rowPage(store, spaceNames(space).bucket.records, {
    filter: recordFilter("svc", "spec"),
    limit: PAGE,
    ...(cursor === undefined ? {} : { cursor }),
  });
  const found: ShownEndpoint[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    const instanceId = parseRecordKey(row.key)?.values.instanceId;
    const spec = RegistrationSpec.safeParse(row.kind === "value" ? parseJson(row.data) : undefined).data;
    if (spec === undefined || instanceId === undefined) continue;
    const shown = shownOf(spec, instanceId, row.seq, await statusOf({ store, space }, spec.endpoint, instanceId));
    bytes += Buffer.byteLength(JSON.stringify(shown));
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes > maxBytes && found.length > 0) return { endpoints: found, cursor: row.seq };
    found.push(shown);
  }
  return { endpoints: found, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

function shownOf(
  { endpoint, owner, clusterDigests, protocol }: RegistrationSpec,
  instanceId: string,
  registrationRevision: number,
  status: RegistrationStatus | undefined,
): ShownEndpoint {
  return {
    endpoint,
    instanceId,
    owner,
    registrationRevision,
    clusterDigests,
    protocol,
    ...(status === undefined ? {} : { epoch: status.epoch, state: status.state }),
  };
}

/** Spec before status: what the status observed can't be newer than the spec that was read before it. */
async function statusOf(
  { store, space }: Registry,
  endpoint: string,
  instanceId: string,
): Promise<RegistrationStatus | undefined> {
  const bucket = spaceNames(space).bucket.records;
  const subject = kvKey(bucket, recordKey("svc", { endpoint, instanceId }, "status"));
  const entry = await leaderLast(store, bucketStream(bucket), subject);
  return RegistrationStatus.safeParse(entry === undefined ? undefined : parseJson(entry.data)).data;
}
