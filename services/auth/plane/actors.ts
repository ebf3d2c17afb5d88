/**
 * The actor ledger as its operator changes it: grant, narrow, revoke, list (§9, §10).
 *
 * Invariants
 * 1. Only the plane changes a row, and each change is pinned to the row it was made from.
 * 2. A revoked row is never brought back: a new grant draws a new lifecycle UID, and only once the
 *    revoked lifecycle is proved gone, and can't be begun any more.
 * 3. The read ACL is never wider than what the broker has accepted: a change writes it after the row, and
 *    writes it even if nothing in it changes (`record-connect.ts`).
 */
import { readGate } from "../../../shared/ledger/moves.ts";
import { managedRetirementOpId } from "../../../shared/ledger/retirement.ts";
import { readReservation } from "../../../shared/ledger/reservation.ts";
import type { Row } from "../../../shared/ledger/store.ts";
import { ErrorCode, badRequest } from "../../../shared/protocol/base/errors.ts";
import { DERIVED_OWNER_TOKEN } from "../../../shared/protocol/base/grammar.ts";
import { type Principal, dotForm, drawLifecycleUid, principal } from "../../../shared/protocol/base/principals.ts";
import { checkName } from "../../../shared/protocol/chat/presence.ts";
import { grantedCapabilities } from "../../../shared/protocol/endpoint/capabilities.ts";
import { ActorRow, actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import { touchAcl } from "./acl.ts";
import { activationOf } from "./activation.ts";
import { outOfBounds, readActor } from "./actor-reads.ts";
import type { ActorAdministration, ActorLists, Grant, ListedActors } from "./authority-type.ts";
import { enterDaemon } from "./daemons.ts";
import { createServing } from "./serving.ts";
import { demandChosen } from "./enrol.ts";
import { beyond, normalised } from "./envelope.ts";
import { type NarrowedList, carryThrough, takenBack } from "./narrowing.ts";
import { type PlaneParts, demandPlane, refusal, settled } from "./parts.ts";
import { beginToEnd, endIfProved, finishEnd } from "./retire.ts";
import { heldGates } from "./operations.ts";
import { takeOverActor } from "./take-over.ts";

export function createAdministration(parts: PlaneParts): ActorAdministration {
  const changing = async <T>(run: () => Promise<T>): Promise<T> => {
    await demandPlane(parts);
    return settled(parts, run);
  };
  return {
    grant: async (grant) => {
      const { actor, narrowed } = await changing(() => grantOnce(parts, grant));
      return narrowed === undefined ? actor : { ...actor, narrowing: await carryThrough(parts, narrowed) };
    },
    narrow: async (p, lists) => {
      const { actor, narrowed } = await changing(() => narrowOnce(parts, p, lists));
      return { ...actor, narrowing: await carryThrough(parts, narrowed) };
    },
    revoke: async (p) => {
      const narrowed = await changing(() => revokeOnce(parts, p));
      const { uid } = narrowed;
      // Once, and for as long as it takes: nobody gets in any more.
      const [copies, ended] = await Promise.all([takenBack(parts, narrowed), endIfProved(parts, p, uid)]);
      return { uid, copies, ...ended };
    },
    retire: async (p, uid) => {
      await changing(() => revokeMeant(parts, p, uid));
      return retireRevoked(parts, p, uid);
    },
    retireRevoked: (p, uid) => retireRevoked(parts, p, uid),
    takeOver: async (p, uid, epoch) => {
      await demandPlane(parts);
      return takeOverActor(parts, p, uid, epoch);
    },
    operations: (cursor) => heldGates(parts, cursor),
    list: (page) => list(parts, page),
    enterDaemon: (caller, args) => enterDaemon(parts, caller, args),
    serving: createServing(parts),
  };
}

async function list(
  parts: PlaneParts,
  { owner, cursor }: { owner?: string | undefined; cursor?: number | undefined },
): Promise<ListedActors> {
  const filter = owner === undefined ? actorKey.allActors : actorKey.actorsOf(owner);
  const page = await parts.ledgerPage("auth", filter, cursor);
  const room = parts.answerBytes();
  const actors: ActorRow[] = [];
  const unreadable: string[] = [];
  let bytes = 0;
  for (const { key, seq, value } of page.rows) {
    const row = ActorRow.safeParse(value).data;
    bytes += row === undefined ? key.length : Buffer.byteLength(JSON.stringify(row));
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes > room && actors.length + unreadable.length > 0) return { actors, unreadable, cursor: seq };
    if (row !== undefined && actorKey.actor(row) === key) actors.push(row);
    else unreadable.push(key);
  }
  return { actors, unreadable, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

type Granted = { readonly actor: ActorRow; readonly narrowed: NarrowedList | undefined };

async function grantOnce(parts: PlaneParts, grant: Grant): Promise<Granted> {
  const p = principal(grant.owner, grant.actor);
  if (!DERIVED_OWNER_TOKEN.test(p.owner) || parts.isReservedOwner(p.owner)) {
    throw badRequest(`${p.owner} is nobody who signs in`, "use the owner token that cotal whoami shows");
  }
  demandChosen(p);
  if ((grant.kind === "managed") !== (grant.secretDigest !== undefined)) {
    throw badRequest("a managed agent has a secret, and a person has none", "give secretDigest with kind managed only");
  }
  const found = await readActor(parts.ledger, p);
  const kept = found?.value.state === "active" ? found.value : undefined;
  if (kept !== undefined && kept.kind !== grant.kind) {
    throw refusal(ErrorCode.AlreadyExists, `${dotForm(p)} is ${kept.kind}`, "choose another name, or revoke it first");
  }
  const row: ActorRow = {
    v: 1,
    ...p,
    lifecycleUid: kept?.lifecycleUid ?? drawLifecycleUid(parts.random),
    state: "active",
    kind: grant.kind,
    name: checkName(grant.name),
    ...normalised({ ...grant, capabilities: grantedCapabilities(grant.capabilities) }),
    ...(await parentOf(parts, grant, p)),
    ...(grant.secretDigest === undefined ? {} : { secretDigest: grant.secretDigest }),
    at: parts.now(),
  };
  const outside = await outOfBounds(parts.ledger, row);
  if (outside !== undefined) {
    throw refusal(ErrorCode.PermissionDenied, `${dotForm(p)} can't be granted: ${outside}`, "grant less, or no parent");
  }
  await parts.tryMint(row);
  // Before anybody may hold it.
  if (row.role !== undefined) await parts.makeQueue(row.role);
  if (found?.value.state === "revoked") await endRevoked(parts, p, found.value);
  await writeRow(parts, p, found, row);
  if (kept === undefined) return { actor: row, narrowed: undefined };
  const narrowed = await narrowedTo(parts, row);
  return { actor: row, narrowed: beyond(row, kept) === undefined ? undefined : narrowed };
}

async function narrowedTo(parts: PlaneParts, row: ActorRow): Promise<NarrowedList> {
  const { owner, actor, lifecycleUid: uid } = row;
  return { principal: { owner, actor }, uid, revision: await touchAcl(parts, row, uid) };
}

async function endRevoked(parts: PlaneParts, p: Principal, { lifecycleUid: uid }: ActorRow): Promise<void> {
  // An enrolment that stands still may not have begun it yet, and must not begin it after the new one.
  await settled(parts, () => beginToEnd(parts, activationOf(parts, "enrol", p, uid)));
  await finishEnd(parts, p, uid);
}

async function parentOf(
  { ledger }: PlaneParts,
  { parent }: Grant,
  child: Principal,
): Promise<{ parent?: ActorRow["parent"] }> {
  if (parent === undefined) return {};
  const row = (await readActor(ledger, parent))?.value;
  if (row?.state !== "active" || dotForm(parent) === dotForm(child)) {
    throw refusal(ErrorCode.FailedPrecondition, `${dotForm(parent)} is no active actor`, "name one: cotal actor list");
  }
  return { parent: { owner: parent.owner, actor: parent.actor, lifecycleUid: row.lifecycleUid } };
}

async function narrowOnce(
  parts: PlaneParts,
  p: Principal,
  lists: Partial<ActorLists>,
): Promise<Granted & { readonly narrowed: NarrowedList }> {
  const found = await demandActive(parts, p);
  const { role = found.value.role, ...named } = lists;
  const next: ActorLists = {
    allowSubscribe: named.allowSubscribe ?? found.value.allowSubscribe,
    allowPublish: named.allowPublish ?? found.value.allowPublish,
    capabilities: named.capabilities ?? found.value.capabilities,
    // An empty role is none: that is how one is taken away.
    ...(role === undefined || role === "" ? {} : { role }),
  };
  const excess = beyond(found.value, next);
  if (excess !== undefined) {
    throw refusal(
      ErrorCode.FailedPrecondition,
      `that is no narrowing of ${dotForm(p)}: ${excess}`,
      "to widen it, grant it anew: cotal actor grant",
    );
  }
  const { role: _, ...rest } = found.value;
  const row: ActorRow = { ...rest, ...normalised(next), at: parts.now() };
  await parts.tryMint(row);
  await writeRow(parts, p, found, row);
  return { actor: row, narrowed: await narrowedTo(parts, row) };
}

async function revokeOnce(parts: PlaneParts, p: Principal): Promise<NarrowedList> {
  const found = await readActor(parts.ledger, p);
  if (found === undefined) throw unknown(p);
  // The row first: from here on nobody gets in, whatever happens to us.
  if (found.value.state === "active") {
    await writeRow(parts, p, found, { ...found.value, state: "revoked", at: parts.now() });
  }
  return narrowedTo(parts, { ...found.value, allowSubscribe: [], capabilities: [] });
}

/** Takes the grant back, if it is still of the lifecycle that is meant (§13.1: the alias alone ends nothing). */
async function revokeMeant(parts: PlaneParts, p: Principal, uid: string): Promise<void> {
  const found = await readActor(parts.ledger, p);
  if (found === undefined) throw unknown(p);
  if (found.value.lifecycleUid === uid && found.value.state === "active") await revokeOnce(parts, p);
}

/**
 * The end of a lifecycle whose grant is revoked, to its very end. Both entries come here: the operator's, and the
 * host's door, which ends nobody who is granted (§13.1).
 */
async function retireRevoked(parts: PlaneParts, p: Principal, uid: string): Promise<{ opId: string }> {
  await demandPlane(parts);
  const row = (await readActor(parts.ledger, p))?.value;
  if (row === undefined) throw unknown(p);
  const opId = managedRetirementOpId(uid);
  if (row.lifecycleUid !== uid) {
    const gate = await readGate(parts.ledger, uid);
    // A successor is granted only once it is over: then this is a late repetition, and it is done.
    if (gate?.value.state === "retired" && gate.value.op.opId === opId) return { opId };
    throw refusal(
      ErrorCode.FailedPrecondition,
      `${dotForm(p)} is granted under another lifecycle than ${uid}`,
      "nothing was ended; cotal actor list shows the one that it has",
    );
  }
  if (row.state !== "revoked") {
    throw refusal(ErrorCode.FailedPrecondition, `${dotForm(p)} is granted`, "revoke it first: cotal actor revoke");
  }
  await endRevoked(parts, p, row);
  return { opId };
}

async function demandActive({ ledger }: PlaneParts, p: Principal): Promise<Row<ActorRow>> {
  const found = await readActor(ledger, p);
  if (found === undefined) throw unknown(p);
  if (found.value.state === "active") return found;
  throw refusal(ErrorCode.FailedPrecondition, `${dotForm(p)} is revoked`, "grant it again: cotal actor grant");
}

const unknown = (p: Principal) =>
  refusal(ErrorCode.NotFound, `there is no actor ${dotForm(p)}`, "cotal actor list shows who there is");

async function writeRow(
  { ledger }: PlaneParts,
  p: Principal,
  found: Row<ActorRow> | undefined,
  row: ActorRow,
): Promise<void> {
  const key = actorKey.actor(p);
  await readReservation(ledger, row.lifecycleUid);
  if (found === undefined) await ledger.create("auth", key, row);
  else await ledger.cas("auth", key, row, found.revision);
}
