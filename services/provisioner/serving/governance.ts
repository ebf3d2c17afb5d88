/**
 * The governance head of an endpoint (supplement B): `govern.<endpoint>`, moved by every registration.
 *
 * It is the point at which registrations of one name come into an order. It moves before the instance's own
 * spec is written: a registration that died between the two is seen (the spec does not have the digest that
 * the head names), and is nobody's burden, for the next one moves the head on, and the dead one's own retry
 * begins again here.
 *
 * Invariants
 * 1. A line of revisions only grows, whichever of its revisions an instance still serves.
 * 2. What was attached of governed traits stays.
 * 3. A compare-and-set on the head decides; everything that was compared is compared again when it is lost.
 */
import { canonicalDigest } from "../../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import {
  type FetchArtifact,
  type SchemaClosure,
  fetchSchemaClosure,
} from "../../../shared/protocol/contract/closure.ts";
import { type ClusterRevision, checkGrowth } from "../../../shared/protocol/contract/compatibility.ts";
import { fetchCluster } from "../../../shared/protocol/contract/resolve.ts";
import { governedBindings } from "../../../shared/protocol/contract/traits.ts";
import { VOID } from "../../../shared/protocol/contract/zod-schema.ts";
import { recordKey } from "../../../shared/protocol/ledger/record-kinds.ts";
import {
  type ClusterLine,
  GovernRow,
  type RegistrationSpec,
  governed,
} from "../../../shared/protocol/ledger/service-rows.ts";
import type { SpaceContext } from "../context.ts";
import { changeJson, readJson, unreadable } from "../rows.ts";
import type { Submitted, SubmittedCluster } from "./submitted.ts";

type Store = Pick<SpaceContext, "store" | "names" | "writer">;

export type Registering = {
  readonly opId: string;
  readonly instanceId: string;
  readonly spec: RegistrationSpec;
  readonly submitted: Submitted;
  /** Of what was published before. */
  readonly published: FetchArtifact;
};

/** Moves the head. Throws `contract-invalid` or `failed-precondition` for what may not follow what was. */
export async function moveHead(store: Store, registering: Registering): Promise<void> {
  const { opId, instanceId, spec, submitted, published } = registering;
  const place = { bucket: store.names.bucket.records, key: recordKey("govern", { endpoint: spec.endpoint }) };
  for (;;) {
    const found = await readJson(store.store, place.bucket, place.key);
    const head = headOf(found, place.key);
    for (const cluster of submitted.clusters) {
      const line = head?.clusters.find(({ urn }) => urn === cluster.document.urn);
      if (line !== undefined) await demandGrowth(line, cluster, published);
    }
    let moved = false;
    await changeJson(store.store, store.writer, place, (current) => {
      // Somebody moved it between: what was compared is no more what is there.
      if (canonicalDigest(current ?? null) !== canonicalDigest(found?.value ?? null)) return undefined;
      moved = true;
      return governed(head, {
        endpoint: spec.endpoint,
        registration: { opId, instanceId, specDigest: canonicalDigest(spec) },
        bindings: governedBindings(submitted.clusters.map(({ document }) => document)),
        clusters: submitted.clusters.map(({ document: { urn, revision }, digest }) => ({ urn, revision, digest })),
        commands: submitted.commands.map(({ name, capability, modes }) => ({
          command: name,
          ...(capability === undefined ? {} : { capability }),
          ...(modes === undefined ? {} : { modes }),
        })),
      });
    });
    if (moved) return;
  }
}

function headOf(found: Awaited<ReturnType<typeof readJson>>, key: string): GovernRow | undefined {
  if (found === undefined) return undefined;
  const parsed = GovernRow.safeParse(found.value);
  if (parsed.success) return parsed.data;
  throw unreadable(key);
}

/** Either follows the other: an instance of the older revision may still register while its line has moved on. */
async function demandGrowth(line: ClusterLine, cluster: SubmittedCluster, published: FetchArtifact): Promise<void> {
  if (line.digest === cluster.digest) return;
  const mine: ClusterRevision = { document: cluster.document, schema: (digest) => of(cluster.schemas, digest) };
  const known = await revisionOf(line, published);
  if (cluster.document.revision < line.revision) checkGrowth(mine, known);
  else checkGrowth(known, mine);
}

async function revisionOf({ digest }: ClusterLine, published: FetchArtifact): Promise<ClusterRevision> {
  const document = await fetchCluster(digest, published);
  const named = [
    ...document.commands.flatMap(({ inputDigest, outputDigest }) => [inputDigest, outputDigest]),
    ...[...document.attributes, ...document.events].map(({ schemaDigest }) => schemaDigest),
  ];
  const schemas = new Map<string, SchemaClosure>();
  for (const one of new Set(named)) {
    schemas.set(one, one === VOID.digest ? VOID : await fetchSchemaClosure(one, published));
  }
  return { document, schema: (wanted) => of(schemas, wanted) };
}

function of(schemas: ReadonlyMap<string, SchemaClosure>, digest: string): SchemaClosure {
  const found = schemas.get(digest);
  if (found !== undefined) return found;
  throw new CotalError(ErrorCode.Internal, `the schema ${digest} was not read`);
}
