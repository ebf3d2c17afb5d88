/**
 * Rows of what serves (supplement B): an instance's registration, the browse index, and the governance head
 * of an endpoint name.
 *
 * Invariants
 * 1. The store revision of a registration's spec is its `registrationRevision`; the row does not repeat it.
 * 2. A registration and the index may grow: what is not known is kept and not judged. The governance head
 *    is an authority row: closed, and an unknown field refuses.
 * 3. What the head remembers of governed traits only grows; taking one away is an authorised revision of
 *    the contract, which is another door.
 */
import { z } from "zod";
import { COMMAND_TOKEN, DIGEST, ID_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN } from "../base/grammar.ts";
import { CotalError, ErrorCode, Outcome } from "../base/errors.ts";
import { Urn, count } from "../contract/documents.ts";
import { GovernedBinding, droppedBindings } from "../contract/traits.ts";
import { AuthzMode } from "../endpoint/modes.ts";
import { isEndpointName } from "../endpoint/names.ts";

const digest = z.string().regex(DIGEST);
const endpoint = z.string().refine(isEndpointName);

/** Clusters of one endpoint. */
const MAX_CLUSTERS = 64;

/** Of a virtual endpoint: one that need not have a living instance. */
export const Activation = z.strictObject({ capacity: count.min(1) });

/** `svc.<endpoint>.<instanceId>.spec`. */
export const RegistrationSpec = z.looseObject({
  endpoint,
  owner: z.string().regex(PRINCIPAL_TOKEN),
  endpointType: z.string().min(1).max(64).optional(),
  /** Closure digests, sorted, each once. */
  clusterDigests: z.array(digest).max(MAX_CLUSTERS).refine(isSortedSet, "not sorted, or one twice"),
  protocol: z.looseObject({ v: count }),
  activation: Activation.optional(),
  /** Of somebody else's instance: the process that registered it. One that was overtaken writes no more. */
  epoch: count.optional(),
});
export type RegistrationSpec = z.infer<typeof RegistrationSpec>;

/** `svc.<endpoint>.<instanceId>.status`, from the instance's own epoch-pinned rail. */
export const RegistrationStatus = z.looseObject({
  epoch: count,
  state: z.string().min(1).max(64),
  observedSpecRevision: count,
  /** Sequence of the report that it was taken from; absent of what the registration itself wrote. */
  reported: count.optional(),
});
export type RegistrationStatus = z.infer<typeof RegistrationStatus>;

/** One line of revisions, and where it stands. */
export const ClusterLine = z.strictObject({ urn: Urn, revision: count, digest });
export type ClusterLine = z.infer<typeof ClusterLine>;

const policyKey = z.string().regex(/^policy\.[a-z0-9_-]{1,64}\.[0-9a-f]{64}$/);

/** Which admission policy is in force, and which one waits until nothing is bound to that. */
export const PolicySelector = z
  .strictObject({
    enforcedPolicyKey: policyKey,
    enforcedPolicyRevision: count,
    pendingPolicyKey: policyKey.optional(),
    pendingPolicyRevision: count.optional(),
  })
  .refine(
    ({ pendingPolicyKey: key, pendingPolicyRevision: revision }) => (key === undefined) === (revision === undefined),
    "a pending policy is a key with its revision",
  );

/** What a caller's grants are made from: a command as the latest registration declares it. */
export const GovernedCommand = z.strictObject({
  command: z.string().regex(COMMAND_TOKEN),
  capability: z.string().regex(COMMAND_TOKEN).optional(),
  /** Absent: it has no target. */
  modes: z.array(z.enum(AuthzMode)).min(1).optional(),
});
export type GovernedCommand = z.infer<typeof GovernedCommand>;

/** The registration that moved the head last. Its spec is written after, so a crash between is seen. */
export const LatestRegistration = z.strictObject({
  opId: z.string().regex(ID_TOKEN),
  instanceId: z.string().regex(LIFECYCLE_UID),
  /** Digest of the canonical spec that it writes. */
  specDigest: digest,
});
export type LatestRegistration = z.infer<typeof LatestRegistration>;

/** `govern.<endpoint>`: the point at which registrations of a name come into an order. */
export const GovernRow = z.strictObject({
  v: z.literal(1),
  endpoint,
  bindings: z.array(GovernedBinding),
  /** The highest revision of each line that was ever registered. */
  clusters: z.array(ClusterLine),
  commands: z.array(GovernedCommand),
  registration: LatestRegistration,
  policy: PolicySelector.optional(),
});
export type GovernRow = z.infer<typeof GovernRow>;

export type GovernChange = {
  readonly endpoint: string;
  readonly registration: LatestRegistration;
  readonly bindings: readonly GovernedBinding[];
  readonly clusters: readonly ClusterLine[];
  readonly commands: readonly GovernedCommand[];
};

/**
 * The head after this registration. Refuses one that drops a governed trait, or that shows another content
 * under a revision that is taken. Whether a line has only grown is `checkGrowth`'s to say, before.
 */
export function governed(before: GovernRow | undefined, change: GovernChange): GovernRow {
  const [dropped] = droppedBindings(before?.bindings ?? [], change.bindings);
  if (dropped !== undefined) {
    throw refuse(
      `the registration drops the governed trait ${dropped.traitUrn} of ${JSON.stringify(dropped.command)}`,
      "register with it, or have its removal authorised first",
    );
  }
  return {
    v: 1,
    endpoint: change.endpoint,
    bindings: [...change.bindings],
    clusters: merged(before?.clusters ?? [], change.clusters),
    commands: widened(before?.commands ?? [], change.commands),
    registration: change.registration,
    ...(before?.policy === undefined ? {} : { policy: before.policy }),
  };
}

/** A line only grows, so what one of its revisions serves is served by no later one less. */
function widened(known: readonly GovernedCommand[], registered: readonly GovernedCommand[]): GovernedCommand[] {
  const commands = new Map(known.map((one) => [one.command, one]));
  for (const one of registered) {
    const known = commands.get(one.command);
    if (known !== undefined && known.capability !== one.capability) {
      throw refuse(
        `the command ${one.command} asks for another capability than before`,
        "give the changed command another name: others hold grants of this one",
      );
    }
    const modes = [...new Set([...(known?.modes ?? []), ...(one.modes ?? [])])].toSorted();
    commands.set(one.command, { ...one, ...(modes.length === 0 ? {} : { modes }) });
  }
  return [...commands.values()].toSorted((a, b) => (a.command < b.command ? -1 : 1));
}

function merged(known: readonly ClusterLine[], registered: readonly ClusterLine[]): ClusterLine[] {
  const lines = new Map(known.map((line) => [line.urn, line]));
  for (const line of registered) {
    const old = lines.get(line.urn);
    if (old !== undefined && old.revision === line.revision && old.digest !== line.digest) {
      throw refuse(
        `revision ${line.revision} of ${line.urn} is registered with another content`,
        "give the change a higher revision",
      );
    }
    if (old === undefined || old.revision < line.revision) lines.set(line.urn, line);
  }
  return [...lines.values()].toSorted((a, b) => (a.urn < b.urn ? -1 : 1));
}

function isSortedSet(list: readonly string[]): boolean {
  return list.every((text, index) => index === 0 || (list[index - 1] ?? "") < text);
}

function refuse(message: string, next: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, message, { outcome: Outcome.NotExecuted, next });
}
