/**
 * `endpoints`: what serves in this space, from the service records (supplement A).
 *
 * A listing, not a proof: an instance that was killed stands here as it last was. Who wants to know asks it.
 */
import type { z } from "zod";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream } from "../../shared/protocol/base/names.ts";
import type {
  EndpointsAnswer,
  EndpointsArgs,
  ShownEndpoint,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { parseRecordKey, recordFilter, recordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { RegistrationSpec, RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import { type SpaceContext, answerRoom } from "./context.ts";
import { parseJson } from "./rows.ts";

const PAGE = 200;
const MAX_BYTES = 400_000;

export async function endpoints(
  context: SpaceContext,
  { cursor }: z.infer<typeof EndpointsArgs>,
): Promise<z.infer<typeof EndpointsAnswer>> {
  const { store, names } = context;
  const page = await rowPage(store, names.bucket.records, {
    filter: recordFilter("svc", "spec"),
    limit: PAGE,
    ...(cursor === undefined ? {} : { cursor }),
  });
  const room = answerRoom(context, MAX_BYTES);
  const found: ShownEndpoint[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    const instanceId = parseRecordKey(row.key)?.values.instanceId;
    const spec = RegistrationSpec.safeParse(row.kind === "value" ? parseJson(row.data) : undefined).data;
    if (spec === undefined || instanceId === undefined) continue;
    const shown = shownOf(spec, instanceId, row.seq, await statusOf(context, spec.endpoint, instanceId));
    bytes += Buffer.byteLength(JSON.stringify(shown));
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes > room && found.length > 0) return { endpoints: found, cursor: row.seq };
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
  { store, names }: SpaceContext,
  endpoint: string,
  instanceId: string,
): Promise<RegistrationStatus | undefined> {
  const bucket = names.bucket.records;
  const subject = kvKey(bucket, recordKey("svc", { endpoint, instanceId }, "status"));
  const entry = await leaderLast(store, bucketStream(bucket), subject);
  return RegistrationStatus.safeParse(entry === undefined ? undefined : parseJson(entry.data)).data;
}
