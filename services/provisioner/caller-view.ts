/**
 * `caller-view`: tells whoever serves an endpoint what one caller may ask of it (decision H21), so that
 * `describe` is cut to what the ledger says and never to what a caller claims.
 *
 * Invariants
 * 1. Only the owner of the endpoint is told, and only of this endpoint: what else a caller may do is none
 *    of his business. Whose the endpoint is stands in its registrations; a name is one owner's for good.
 * 2. Leader reads, at every question: what was narrowed holds at once.
 */
import { isMarker, leaderLast, leaderNext } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { bucketStream } from "../../shared/protocol/base/names.ts";
import { parseCapability } from "../../shared/protocol/endpoint/capabilities.ts";
import type { CallerViewAnswer, CallerViewArgs } from "../../shared/protocol/endpoint/caller-view-shapes.ts";
import { type Caller, endpointToken } from "../../shared/protocol/endpoint/grammar.ts";
import { AclRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { RegistrationSpec } from "../../shared/protocol/ledger/service-rows.ts";
import type { SpaceContext } from "./context.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";

type Store = Pick<SpaceContext, "store" | "names"> & { readonly settings: Pick<SpaceContext["settings"], "auth"> };

export async function callerView(
  context: Store,
  asker: Caller,
  { endpoint, caller }: CallerViewArgs,
): Promise<CallerViewAnswer> {
  if (context.settings.auth === "open") return { capabilities: null };
  if ((await ownerOf(context, endpoint)) !== asker.principal.owner) throw notYours(endpoint);
  const held = await acceptedOf(context, caller);
  return { capabilities: held.filter((text) => isOf(text, endpoint)) };
}

function isOf(text: string, endpoint: string): boolean {
  const read = parseCapability(text);
  return read?.kind === "endpoint" && read.endpoint === endpoint;
}

/** Of any registration of that name: all have the same owner. */
async function ownerOf({ store, names }: Store, endpoint: string): Promise<string | undefined> {
  const { records } = names.bucket;
  const filter = kvKey(records, `svc.${endpointToken(endpoint)}.*.spec`);
  for (let from = 1; ;) {
    const row = await leaderNext(store, bucketStream(records), filter, from);
    if (row === undefined) return undefined;
    const spec = isMarker(row.headers) ? undefined : RegistrationSpec.safeParse(parseJson(row.data)).data;
    if (spec?.endpoint === endpoint) return spec.owner;
    from = row.seq + 1;
  }
}

/** What the broker has accepted for that lifecycle; nothing where there is no such row, or none that parses. */
async function acceptedOf({ store, names }: Store, { owner, actor, uid }: CallerViewArgs["caller"]) {
  const { acl } = names.bucket;
  const row = await leaderLast(store, bucketStream(acl), kvKey(acl, ledgerKey.acl({ owner, actor }, uid)));
  if (row === undefined || isMarker(row.headers)) return [];
  return AclRow.safeParse(parseJson(row.data)).data?.capabilities ?? [];
}

/** The same for a name that nobody serves: who asks learns nothing about names. */
function notYours(endpoint: string): CotalError {
  return new CotalError(ErrorCode.PermissionDenied, `you serve no endpoint ${endpoint} here`, {
    outcome: Outcome.NotExecuted,
    next: "register an instance of it first; the operator assigns a name with cotal endpoint assign",
  });
}
