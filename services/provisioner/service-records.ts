/**
 * Service records (supplement A and B): `svc.<endpoint>.<instanceId>.spec`,
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
import { changeJson, readJson } from "../../shared/broker/json-rows.ts";

type Store = Pick<SpaceContext, "space" | "store" | "names" | "writer">;

export type Instance = {
  readonly endpoint: OwnEndpoint;
  readonly instanceId: string;
  /** Owner token of whoever serves it. */
  readonly owner: string;
};

/** Publishes the contract of one of this project's own, then the spec that names it: no digest leads nowhere. */
export async function registerInstance(store: Store, { endpoint, instanceId, owner }: Instance): Promise<number> {
  const contract = ownContract(endpoint);
  await publishArtifacts(store, contract.artifacts);
  return writeSpec(store, instanceId, specOf(endpoint, owner, contract.clusterDigests));
}

export function specOf(endpoint: string, owner: string, clusterDigests: readonly string[]): RegistrationSpec {
  return RegistrationSpec.parse({
    endpoint,
    owner,
    clusterDigests: clusterDigests.toSorted(),
    protocol: { v: PROTOCOL_VERSION },
  });
}

/** The revision that the spec has then: a new one only if it changed. */
export async function writeSpec(store: Store, instanceId: string, spec: RegistrationSpec): Promise<number> {
  const bucket = store.names.bucket.records;
  const key = recordKey("svc", { endpoint: spec.endpoint, instanceId }, "spec");
  await changeJson(store.store, store.writer, { bucket, key }, (current) => {
    const theirs = RegistrationSpec.safeParse(current).data?.epoch ?? 0;
    if (spec.epoch !== undefined && theirs > spec.epoch) throw superseded(spec.epoch, theirs);
    return current !== undefined && canonicalJson(current) === canonicalJson(spec) ? undefined : spec;
  });
  const row = await readJson(store.store, bucket, key);
  if (row !== undefined) return row.revision;
  throw new CotalError(ErrorCode.Internal, "the registration that was just written is gone", {
    outcome: Outcome.Unknown,
    next: "run cotal doctor: the store has lost a row",
  });
}

/** The spec of an instance and its revision, from the leader. */
export async function readSpec(
  store: Pick<Store, "store" | "names">,
  endpoint: string,
  instanceId: string,
): Promise<{ readonly spec: RegistrationSpec; readonly revision: number } | undefined> {
  const row = await readJson(
    store.store,
    store.names.bucket.records,
    recordKey("svc", { endpoint, instanceId }, "spec"),
  );
  const spec = RegistrationSpec.safeParse(row?.value).data;
  return row === undefined || spec === undefined ? undefined : { spec, revision: row.revision };
}

export async function writeStatus(
  store: Store,
  { endpoint, instanceId }: { readonly endpoint: string; readonly instanceId: string },
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
