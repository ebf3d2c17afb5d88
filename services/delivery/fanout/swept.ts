/**
 * Whether a read list has been swept for, so that whoever narrowed it can say so (§8, `delivery.md` 5).
 *
 * Invariant: yes is the marker's word. It was written over the one before it by whoever took the member's copies
 * back, so no batch that was authorised by an older list can land any more.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Setting, groupsInForce, isOf, readMarker } from "../../../shared/broker/markers.ts";
import { type AclSweptArgs, SWEEP_PATIENCE_MS } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { groupOf } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";

const LOOK_MS = 50;

export type SweptPlace = { readonly nc: NatsConnection; readonly space: string; readonly setting: Setting };

/** Waits a while for it. False is no failure: the group's next writer sweeps before it writes anything. */
export async function isSwept(
  { nc, space, setting }: SweptPlace,
  { owner, actor, uid, revision }: AclSweptArgs,
  signal: AbortSignal,
): Promise<boolean> {
  const lifecycle = ledgerKey.acl({ owner, actor }, uid);
  for (const end = performance.now() + SWEEP_PATIENCE_MS; ;) {
    // The number of groups may be another one by now, and between two reads: what doesn't fit is looked at again.
    const groups = await groupsInForce(nc, space, setting);
    const { row } = await readMarker(nc, { space, group: groupOf(lifecycle, groups) });
    if (row !== undefined && isOf(row, groups) && row.acl >= revision) return true;
    if (signal.aborted || performance.now() > end) return false;
    await sleep(LOOK_MS);
  }
}
