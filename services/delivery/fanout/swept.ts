/**
 * Whether a read list has been swept for, so that whoever narrowed it can say so (§8, `delivery.md` 5).
 *
 * Invariant: yes is the marker's word. It was written over the one before it by whoever took the member's copies
 * back, so no batch that was authorised by an older list can land any more.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type AclSweptArgs, SWEEP_PATIENCE_MS } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { groupOf } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { readMarker } from "./marker.ts";

const LOOK_MS = 50;

export type SweptPlace = { readonly nc: NatsConnection; readonly space: string; readonly groups: number };

/** Waits a while for it. False is no failure: the group's next writer sweeps before it writes anything. */
export async function isSwept(
  { nc, space, groups }: SweptPlace,
  { owner, actor, uid, revision }: AclSweptArgs,
  signal: AbortSignal,
): Promise<boolean> {
  const group = groupOf(ledgerKey.acl({ owner, actor }, uid), groups);
  for (const end = performance.now() + SWEEP_PATIENCE_MS; ;) {
    const { row } = await readMarker(nc, { space, group });
    if (row !== undefined && row.acl >= revision) return true;
    if (signal.aborted || performance.now() > end) return false;
    await sleep(LOOK_MS);
  }
}
