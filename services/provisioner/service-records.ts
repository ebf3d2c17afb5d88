/**
 * Service records of this project's own endpoints (supplement A and B): `svc.<endpoint>.<instanceId>.spec`,
 * written when the instance registers, and `.status`, written when it says how it is.
 *
 * Invariants
 * 1. The store revision of the spec is the instance's registration revision. It moves only when the spec
 *    changes: who registers the same contract again keeps the revision, and callers keep what they resolved.
 * 2. A status never goes back: one of an older epoch is refused, so a superseded process can't speak for its
 *    successor.
 */
import { canonicalJson } from "../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { PROTOCOL_VERSION } from "../../shared/protocol/contract/descriptor.ts";
import { type OwnEndpoint, ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { recordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { RegistrationSpec, RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import { publishArtifacts } from "./artifacts.ts";
import type { SpaceContext } from "./context.ts";
import { changeJson, readJson } from "./rows.ts";

type Store = Pick<SpaceContext, "space" | "store" | "names" | "writer">;

export type Instance = {
  readonly endpoint: OwnEndpoint;
  readonly instanceId: string;
  /** Owner token of whoever serves it. */
  readonly owner: string;
};

/** Publishes the contract, then the spec that names it: nobody finds a digest that leads nowhere. */
export async function registerInstance(store: Store, { endpoint, instanceId, owner }: Instance): Promise<number> {
  const contract = ownContract(endpoint);
  await publishArtifacts(store, contract.artifacts);
  const spec: RegistrationSpec = RegistrationSpec.parse({
    endpoint,
    owner,
    clusterDigests: contract.clusterDigests,
    protocol: { v: PROTOCOL_VERSION },
  });
  const bucket = store.names.bucket.records;
  const key = recordKey("svc", { endpoint, instanceId }, "spec");
  await changeJson(store.store, store.writer, { bucket, key }, (current) =>
    current !== undefined && canonicalJson(current) === canonicalJson(spec) ? undefined : spec,
  );
  const row = await readJson(store.store, bucket, key);
  if (row !== undefined) return row.revision;
  throw new CotalError(ErrorCode.Internal, "the registration that was just written is gone", {
    outcome: Outcome.Unknown,
    next: "run cotal doctor: the store has lost a row",
  });
}

export async function writeStatus(
  store: Store,
  { endpoint, instanceId }: Pick<Instance, "endpoint" | "instanceId">,
  status: RegistrationStatus,
): Promise<void> {
  const place = {
    bucket: store.names.bucket.records,
    key: recordKey("svc", { endpoint, instanceId }, "status"),
  };
  await changeJson(store.store, store.writer, place, (current) => {
    const before = RegistrationStatus.safeParse(current).data;
    if (before !== undefined && before.epoch > status.epoch) throw superseded(status.epoch, before.epoch);
    return { ...status };
  });
}

function superseded(mine: number, theirs: number): CotalError {
  return new CotalError(ErrorCode.Expired, `epoch ${mine} of this instance is over: it is at ${theirs}`, {
    outcome: Outcome.NotExecuted,
    next: "stop this process: another one has taken its place",
  });
}
