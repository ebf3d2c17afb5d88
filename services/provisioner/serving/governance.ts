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
import { contractInvalid } from "../../../shared/protocol/contract/limits.ts";
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
import { changeJson, readJson, unreadable } from "../../../shared/broker/json-rows.ts";
import type { Submitted, SubmittedCluster } from "./submitted.ts";

type Store = Pick<SpaceContext, "store" | "names" | "writer">;

/** What is to be registered, whoever serves it. */
export type Planned = {
  readonly spec: RegistrationSpec;
  readonly submitted: Submitted;
  /** Of what was published before. */
  readonly published: FetchArtifact;
};

export type Registering = Planned & { readonly opId: string; readonly instanceId: string };

/**
 * Throws what `moveHead` would now. Asked before an instance's predecessor is ended: a contract that is
 * refused must cost nobody his place.
 */
export async function checkHead(store: Store, planned: Planned): Promise<void> {
  const { head } = await readFollowed(store, planned);
  nextHead(head, { ...planned, opId: "", instanceId: "" });
}

/** Moves the head. Throws `contract-invalid` or `failed-precondition` for what may not follow what was. */
export async function moveHead(store: Store, registering: Registering): Promise<void> {
  const place = placeOf(store, registering);
  for (;;) {
    const { found, head } = await readFollowed(store, registering);
    const moved = await changeJson(store.store, store.writer, place, (current) => {
      // Somebody moved it between: what was compared is no more what is there.
      const same = canonicalDigest(current ?? null) === canonicalDigest(found?.value ?? null);
      return same ? nextHead(head, registering) : undefined;
    });
    if (moved !== undefined) return;
  }
}

const placeOf = ({ names }: Pick<Store, "names">, { spec }: Planned) => ({
  bucket: names.bucket.records,
  key: recordKey("govern", { endpoint: spec.endpoint }),
});

/** The head as it is, once every line of it is known to have only grown. */
async function readFollowed(store: Store, planned: Planned) {
  const { bucket, key } = placeOf(store, planned);
  const found = await readJson(store.store, bucket, key);
  const head = headOf(found, key);
  for (const cluster of planned.submitted.clusters) {
    const line = head?.clusters.find(({ urn }) => urn === cluster.document.urn);
    if (line !== undefined) await demandGrowth(line, cluster, planned.published);
  }
  return { found, head };
}

function nextHead(head: GovernRow | undefined, { opId, instanceId, spec, submitted }: Registering): GovernRow {
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
}

function headOf(found: Awaited<ReturnType<typeof readJson>>, key: string): GovernRow | undefined {
  if (found === undefined) return undefined;
  const parsed = GovernRow.safeParse(found.value);
  if (parsed.success) return parsed.data;
  throw unreadable(key);
}

/**
 * Either follows the other: an instance of an older revision may still register while its line has moved on,
 * with the very content that was registered then. The head knows the latest alone, so nothing else can be held
 * against what lies between.
 */
async function demandGrowth(line: ClusterLine, cluster: SubmittedCluster, published: FetchArtifact): Promise<void> {
  if (line.digest === cluster.digest) return;
  const mine: ClusterRevision = { document: cluster.document, schema: (digest) => of(cluster.schemas, digest) };
  const known = await revisionOf(line, published);
  const { urn, revision } = cluster.document;
  if (revision >= line.revision) return checkGrowth(known, mine);
  checkGrowth(mine, known);
  if ((await published(cluster.digest)) !== undefined) return;
  throw contractInvalid(
    `${urn} is at revision ${line.revision}, and this content was not registered as ${revision}`,
    "give the change a higher revision",
  );
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
