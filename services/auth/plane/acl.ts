/**
 * The ACL of a lifecycle: what mediated reads and stored copies are cut to (decisions H34, H55), and the
 * capabilities that others may take to be its own (supplement A, the view of a caller).
 *
 * Invariant: it is never wider than what the broker has accepted. It widens at a connect
 * (`record-connect.ts`); a change of the actor's row only ever narrows it.
 */
import { readRow } from "../../../shared/ledger/store.ts";
import type { ActorRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import { bothCapabilities } from "../../../shared/protocol/endpoint/capabilities.ts";
import { AclRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { both } from "./envelope.ts";
import { type PlaneParts, settled } from "./parts.ts";

/** As the actor's row grants it. */
export function aclOf(row: ActorRow, credential: string, at: number): AclRow {
  return {
    v: 1,
    name: row.name,
    allowSubscribe: row.allowSubscribe,
    ...(row.role === undefined ? {} : { role: row.role }),
    ...heldCapabilities(row.capabilities),
    durables: true,
    credential,
    at,
  };
}

/** Left out where there are none, as every row was before there were any. */
const heldCapabilities = (capabilities: string[]): Pick<AclRow, "capabilities"> =>
  capabilities.length === 0 ? {} : { capabilities };

/**
 * Keeps what both it and this row grant. Written also if nothing changes: a connect under way must lose. Resolves
 * with the row's revision; `undefined` where there is none.
 */
export async function touchAcl(
  parts: Pick<PlaneParts, "ledger" | "now" | "random">,
  row: ActorRow,
  uid: string,
): Promise<number | undefined> {
  const { ledger } = parts;
  const key = ledgerKey.acl(row, uid);
  return settled(parts, async () => {
    const raw = await ledger.read("acl", key);
    // None yet, or none any more: nobody reads by it.
    if (raw.kind !== "value") return undefined;
    const found = await readRow(ledger, "acl", key, AclRow);
    if (found === undefined) return undefined;
    const { capabilities = [], ...rest } = found.value;
    const narrowed: AclRow = {
      ...rest,
      allowSubscribe: both(rest.allowSubscribe, row.allowSubscribe),
      ...heldCapabilities(bothCapabilities(capabilities, row.capabilities)),
      at: parts.now(),
    };
    return ledger.cas("acl", key, narrowed, found.revision);
  });
}
