/**
 * May this bearer's incarnation connect now (§10)?
 *
 * Everything is read at the leader for this one question, at once: the actor's row, the root
 * credential's row, the lifecycle head, the issuance gate. Anything but a clear yes is a refusal with a
 * reason, and so is a ledger that can't be read.
 *
 * Invariants
 * 1. A yes means that the actor's row is active and names this lifecycle, the head is active under it and
 *    stamped with this root, the root's row is active, unexpired and bound to this holder, and the gate is
 *    open.
 * 2. A recheck reads every row of the auth bucket again that the yes rested on (§13.1: "in the same
 *    stream"). If none has moved, no end has begun meanwhile: an end's first writes are the actor's row and
 *    the gate. If one has, everything is asked again. A view rests on other buckets too: it is always asked.
 * 3. A reservation is written once for ever, so one that was ordinary at one connect is not read again; it is
 *    nothing that a yes could lose.
 * 4. What a capability opens is read last, and only where the row names an endpoint. A registration that
 *    comes between that reading and the answer is the next connect's: it ends nobody.
 */
import { LRUCache } from "lru-cache";
import { resolveCapabilities } from "../../../shared/ledger/capabilities.ts";
import { readReservation } from "../../../shared/ledger/reservation.ts";
import { type LedgerStore, type RawRow, readRow } from "../../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import {
  CHAT_ACTOR,
  LIFECYCLE_UID,
  PRINCIPAL_TOKEN,
  ROOT_CREDENTIAL_ID,
} from "../../../shared/protocol/base/grammar.ts";
import { type Principal, dotForm, samePrincipal } from "../../../shared/protocol/base/principals.ts";
import type { ActorRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import { CredentialRow, GateRow, HeadRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { outOfBounds, readActor } from "./actor-reads.ts";
import type { Authority, BearerAct, Checked, OpenedCommands, Refused, Stamp } from "./authority-type.ts";
import { readChatGrant } from "./chat/check-chat.ts";
import { type ViewParts, viewRefusal } from "./views.ts";

type CheckParts = ViewParts;

/** Lifecycles whose reservation is known to be an ordinary one. */
const MAX_ORDINARY = 10_000;

const refuse = (code: ErrorCode, reason: string): Refused => ({ ok: false, code, reason });

export function createCheck(parts: CheckParts): Pick<Authority, "check" | "recheck"> {
  const ordinary = new LRUCache<string, true>({ max: MAX_ORDINARY });
  const demandOrdinary = async (uid: string): Promise<void> => {
    if (ordinary.has(uid)) return;
    if ((await readReservation(parts.ledger, uid)) !== undefined) ordinary.set(uid, true);
  };
  const check = async (act: BearerAct): Promise<Checked> => {
    try {
      return await decide(parts, act, demandOrdinary);
    } catch (thrown) {
      if (!(thrown instanceof CotalError)) throw thrown;
      // A row that is corrupt says which; a broker that is away says so. Nothing of either lets anybody in.
      return refuse(thrown.code, thrown.message);
    }
  };
  return {
    check,
    recheck: async (stamp) => {
      if (stamp.act.view === undefined && (await unmoved(parts.ledger, stamp))) return { ok: true };
      const again = await check(stamp.act);
      if (!again.ok) return again;
      // What was signed came from that row and no other.
      if (again.stamp.actorRevision === stamp.actorRevision) return { ok: true };
      const { owner, actor } = stamp.act;
      return refuse(ErrorCode.Conflict, `the grant of ${owner}.${actor} changed while it connected`);
    },
  };
}

async function unmoved(ledger: LedgerStore, { rows }: Stamp): Promise<boolean> {
  try {
    const stands = await Promise.all(
      rows.map(async ({ key, revision }) => revisionOf(await ledger.read("auth", key)) === revision),
    );
    return stands.every(Boolean);
  } catch (thrown) {
    // Who can't be asked says neither: the whole check will name what is wrong.
    if (thrown instanceof CotalError) return false;
    throw thrown;
  }
}

const revisionOf = (raw: RawRow): number | undefined => (raw.kind === "value" ? raw.revision : undefined);

/** The same ledger, and a list of what was read of the auth bucket. */
function watched(ledger: LedgerStore): { readonly ledger: LedgerStore; readonly rows: Stamp["rows"] } {
  const rows: Stamp["rows"][number][] = [];
  const read: LedgerStore["read"] = async (bucket, key) => {
    const raw = await ledger.read(bucket, key);
    if (bucket === "auth") rows.push({ key, revision: revisionOf(raw) });
    return raw;
  };
  return { ledger: { ...ledger, read }, rows };
}

async function decide(
  given: CheckParts,
  act: BearerAct,
  demandOrdinary: (uid: string) => Promise<void>,
): Promise<Checked> {
  const { ledger, rows } = watched(given.ledger);
  const parts = { ...given, ledger };
  const { now } = parts;
  const { owner, actor, lifecycleUid: uid, credentialId } = act;
  const lawful =
    PRINCIPAL_TOKEN.test(owner) &&
    PRINCIPAL_TOKEN.test(actor) &&
    LIFECYCLE_UID.test(uid) &&
    ROOT_CREDENTIAL_ID.test(credentialId);
  // They become keys: one with a dot in it would read somebody else's row.
  if (!lawful) return refuse(ErrorCode.Unauthenticated, "the bearer's identity claims are malformed");
  const who = { owner, actor };
  const [row, root, head, gate] = await Promise.all([
    CHAT_ACTOR.test(actor) ? readChatGrant(parts, act) : readActor(ledger, who),
    readRow(ledger, "auth", ledgerKey.cred(uid, credentialId), CredentialRow),
    readRow(ledger, "records", ledgerKey.head(who), HeadRow),
    readRow(ledger, "auth", ledgerKey.gate(uid), GateRow),
    demandOrdinary(uid),
  ]);
  const refused =
    ofActor(row?.value, who, uid) ??
    ofHead(head?.value, who, act) ??
    ofRoot(root?.value, who, act, Math.floor(now() / 1000)) ??
    ofGate(gate?.value, who);
  if (refused !== undefined) return refused;
  if (row === undefined || root === undefined) return refuse(ErrorCode.PermissionDenied, "it has no rows");
  const outside = await outOfBounds(ledger, row.value);
  if (outside !== undefined) return refuse(ErrorCode.PermissionDenied, `${dotForm(who)} may not connect: ${outside}`);
  const unviewed = await viewRefusal(parts, act, row.value);
  if (unviewed !== undefined) return unviewed;
  const opened = await openedBy(parts, act, row.value);
  const stamp = { act, actorRevision: row.revision, rows };
  return { ok: true, actor: row.value, opened, rootExpires: root.value.exp, stamp };
}

const NOTHING_OPENED: OpenedCommands = { commands: [], serves: false };

/**
 * By the heads of the endpoints that the row names, if it names any. One that nobody has registered opens
 * nothing; the next connect after its registration does.
 */
async function openedBy({ ledger }: CheckParts, act: BearerAct, row: ActorRow): Promise<OpenedCommands> {
  if (act.view !== undefined) return NOTHING_OPENED;
  const { commands, serves } = await resolveCapabilities(ledger, row.capabilities);
  return { commands, serves };
}

function ofActor(row: ActorRow | undefined, who: Principal, uid: string): Refused | undefined {
  if (row === undefined) return refuse(ErrorCode.PermissionDenied, `${dotForm(who)} is granted nothing in this space`);
  if (row.state !== "active") return refuse(ErrorCode.PermissionDenied, `the grant of ${dotForm(who)} is revoked`);
  if (row.lifecycleUid === uid) return undefined;
  return refuse(ErrorCode.Expired, `the bearer is of an earlier lifecycle of ${dotForm(who)}`);
}

function ofHead(head: HeadRow | undefined, who: Principal, act: BearerAct): Refused | undefined {
  if (head === undefined) return refuse(ErrorCode.FailedPrecondition, `${dotForm(who)} has no lifecycle`);
  if (!samePrincipal(head, who)) {
    return refuse(ErrorCode.FailedPrecondition, `the lifecycle head of ${dotForm(who)} names another alias`);
  }
  if (head.state !== "active" || head.lifecycleUid !== act.lifecycleUid) {
    return refuse(ErrorCode.Expired, `the lifecycle of ${dotForm(who)} is ended or was replaced`);
  }
  if (head.currentCredentialId === act.credentialId) return undefined;
  return refuse(ErrorCode.Expired, `the root credential of ${dotForm(who)} was replaced`);
}

function ofRoot(row: CredentialRow | undefined, who: Principal, act: BearerAct, seconds: number): Refused | undefined {
  if (row === undefined)
    return refuse(ErrorCode.Unauthenticated, `the root credential of ${dotForm(who)} is not in the ledger`);
  const bound =
    row.credentialId === act.credentialId &&
    row.lifecycleUid === act.lifecycleUid &&
    row.holderPrincipal === dotForm(who);
  if (!bound) return refuse(ErrorCode.Unauthenticated, `the root credential is not one of ${dotForm(who)}`);
  if (row.state !== "active")
    return refuse(ErrorCode.PermissionDenied, `the root credential of ${dotForm(who)} is revoked`);
  if (row.exp > seconds) return undefined;
  return refuse(ErrorCode.Expired, `the root credential of ${dotForm(who)} has expired`);
}

function ofGate(gate: GateRow | undefined, who: Principal): Refused | undefined {
  if (gate?.state === "open") return undefined;
  const why = gate === undefined ? "is missing" : `is ${gate.state} (${gate.op.kind} ${gate.op.opId})`;
  return refuse(ErrorCode.FailedPrecondition, `the issuance gate of ${dotForm(who)} ${why}`);
}
