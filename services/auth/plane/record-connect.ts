/**
 * What is written before a connection's JWT leaves: the evidence of its key, and the read ACL that the
 * JWT will carry (§13.1, decision H34).
 *
 * Invariants
 * 1. Evidence is created once. A key that has any, under whatever lifecycle, refuses.
 * 2. The ACL row is never brought back to lists that a narrowing has replaced. Its revision is read
 *    first, then the actor's row must still be the one that was checked, then the write is pinned. A
 *    narrowing writes the actor's row before the ACL row, and writes the ACL row even if it changes
 *    nothing: so one of the two loses its compare-and-set, and it is never the narrowing that is undone.
 * 3. What this process has settled for a revision of the actor's row stays settled under that revision: only
 *    a change of the lists moves the row after it, and it writes the actor's row first.
 */
import { LRUCache } from "lru-cache";
import { readRow } from "../../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { type NatkeyRow, actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import { AclRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { aclOf } from "./acl.ts";
import { readActor } from "./actor-reads.ts";
import type { Authority, Checked, Connect, Stamp } from "./authority-type.ts";
import { type PlaneParts, refusal } from "./parts.ts";

type RecordParts = Pick<PlaneParts, "ledger" | "space" | "now">;
/** Several connects of one actor may bring its row to the same lists at once. */
const ACL_ROUNDS = 4;
/** Actors whose settled lists are remembered, and for how long: a row that was lost comes back after it. */
const SETTLED = { max: 10_000, ttl: 60_000 };

type Yes = Extract<Checked, { ok: true }>;

export function createRecordConnect(parts: RecordParts): Authority["recordConnect"] {
  const settled = new LRUCache<string, Stamp["actorRevision"]>(SETTLED);
  const settle = async (checked: Yes): Promise<void> => {
    const { act, actorRevision } = checked.stamp;
    // A view reads no channel: what it connects with says nothing of what an agent's connection may read.
    if (act.view !== undefined || settled.get(act.credentialId) === actorRevision) return;
    await settleAcl(parts, checked);
    settled.set(act.credentialId, actorRevision);
  };
  return async (checked, connect) => {
    await Promise.all([fileEvidence(parts, checked, connect), settle(checked)]);
  };
}

async function fileEvidence({ ledger, space }: RecordParts, { stamp }: Yes, connect: Connect): Promise<void> {
  const { owner, actor, lifecycleUid, credentialId, view } = stamp.act;
  const row: NatkeyRow = {
    v: 1,
    space,
    owner,
    actor,
    lifecycleUid,
    credentialId,
    view: view ?? null,
    connId: connect.connId,
    iat: connect.iat,
    exp: connect.exp,
  };
  try {
    await ledger.create("auth", actorKey.natkey(connect.userKey), row);
  } catch (error) {
    if (!(error instanceof CotalError) || error.code !== ErrorCode.Conflict) throw error;
    throw refusal(ErrorCode.AlreadyExists, "a JWT was issued to this user key before", "connect again");
  }
}

async function settleAcl(parts: RecordParts, checked: Yes): Promise<void> {
  for (let round = 1; ; round += 1) {
    try {
      return await settleOnce(parts, checked);
    } catch (error) {
      const lost = error instanceof CotalError && error.code === ErrorCode.Conflict;
      if (!lost || round === ACL_ROUNDS) throw error;
    }
  }
}

async function settleOnce({ ledger, now }: RecordParts, { actor, stamp }: Yes): Promise<void> {
  const p: Principal = { owner: actor.owner, actor: actor.actor };
  const key = ledgerKey.acl(p, actor.lifecycleUid);
  const found = await readRow(ledger, "acl", key, AclRow);
  const wanted = aclOf(actor, stamp.act.credentialId, now());
  if (found !== undefined && sameAcl(found.value, wanted)) return;
  const row = await readActor(ledger, p);
  if (row?.revision !== stamp.actorRevision) throw moved(p);
  if (found === undefined) await ledger.create("acl", key, wanted);
  else await ledger.cas("acl", key, wanted, found.revision);
}

function sameAcl(one: AclRow, other: AclRow): boolean {
  const spelled = (row: AclRow) =>
    JSON.stringify([row.name, row.allowSubscribe, row.role, row.capabilities, row.credential]);
  return spelled(one) === spelled(other);
}

function moved(p: Principal): CotalError {
  return refusal(ErrorCode.Conflict, `the grant of ${dotForm(p)} changed while it connected`, "connect again");
}
