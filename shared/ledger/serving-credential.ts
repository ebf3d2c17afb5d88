/**
 * The credential that an instance serves with: its row stands, and the gate was open at its epoch after that row was
 * written, before the credential leaves (§13.1).
 */
import { dotForm } from "../protocol/base/principals.ts";
import {
  EndpointCredentialRow,
  EndpointGateRow,
  endpointKey,
  servingPrincipal,
} from "../protocol/ledger/endpoint-rows.ts";
import { isConflict } from "./moves.ts";
import { isOpener, moved } from "./serving-keys.ts";
import type { EnterRequest, ServingParts } from "./serving-type.ts";
import { type LedgerStore, type Row, readRow } from "./store.ts";

/** Once; throws `conflict` where it is to be asked again. `wrote` says whether an earlier try has written the row. */
export async function enterOnce(parts: ServingParts, request: EnterRequest, wrote: { row: boolean }): Promise<void> {
  const { ledger } = parts;
  const { endpoint, owner, instanceId, epoch, userKey, expires } = request;
  const gateKey = endpointKey.gate(endpoint, instanceId);
  const rowKey = endpointKey.cred(endpoint, instanceId, userKey);
  const [gate, found] = await Promise.all([
    readRow(ledger, "auth", gateKey, EndpointGateRow),
    readRow(ledger, "auth", rowKey, EndpointCredentialRow),
  ]);
  const who = dotForm(servingPrincipal(owner, instanceId));
  if (gate?.value.state !== "open" || gate.value.principal !== who || gate.value.processEpoch !== epoch) {
    const spent = wrote.row || (found?.value.processEpoch ?? 0) < (gate?.value.processEpoch ?? 0);
    // Also that of a process that died before it could: an epoch that is over has nothing active.
    if (spent && found?.value.state === "active") await withdraw(ledger, rowKey, found);
    throw moved(endpoint, instanceId);
  }
  const row: EndpointCredentialRow = {
    credentialId: userKey,
    endpoint,
    holderPrincipal: who,
    lifecycleUid: instanceId,
    processEpoch: epoch,
    sourceChain: ["root"],
    state: "active",
    exp: expires,
  };
  if (found === undefined && !(await isOpener(parts, gate.value, request))) throw moved(endpoint, instanceId);
  if (found === undefined) await ledger.create("auth", rowKey, row);
  else if (found.value.state !== "active" || found.value.processEpoch !== epoch) throw moved(endpoint, instanceId);
  else if (found.value.exp < expires) await ledger.cas("auth", rowKey, row, found.revision);
  wrote.row ||= found === undefined;
  await ledger.cas("auth", gateKey, gate.value, gate.revision);
}

/** The loser's own row. Whoever moved it meanwhile had his own reason. */
async function withdraw(ledger: LedgerStore, key: string, row: Row<EndpointCredentialRow>): Promise<void> {
  await ledger.cas("auth", key, { ...row.value, state: "revoked" }, row.revision).catch((error: unknown) => {
    if (!isConflict(error)) throw error;
  });
}
