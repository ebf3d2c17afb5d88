/**
 * Enrolment: everything that must be durable before a bearer may leave (§10, §13.1).
 *
 * In order: actor row · lifecycle (`shared/ledger/activation.ts`: uid, frozen gate, head, durables and
 * read ACL, gate opened) · root credential row · gate touched · head stamped.
 *
 * Invariants
 * 1. The lifecycle UID is the row's, and the operation is its one activation (`activation.ts`).
 * 2. An existing lifecycle needs no plane; a new one does (decision H45): where that is another process, it is
 *    asked to begin it (`elsewhere.ts`).
 * 3. The row is read again once the head is active and before the gate opens: whoever revokes it either
 *    finds the head and ends it, or has revoked before that reading and stops the activation there. Whoever
 *    narrows it either finds the read ACL and narrows that, or has written before that reading (H34).
 * 4. New names of one owner are counted and made one after another: many at once are no more than allowed.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { activate } from "../../../shared/ledger/activation.ts";
import { enterCredential } from "../../../shared/ledger/entry.ts";
import { ROOT_LIFE_SECONDS, rootCredentialId } from "../../../shared/ledger/root.ts";
import { type Row, createOrRead, readRow } from "../../../shared/ledger/store.ts";
import { type CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { DERIVED_OWNER_TOKEN } from "../../../shared/protocol/base/grammar.ts";
import { type Principal, dotForm, drawLifecycleUid, principal } from "../../../shared/protocol/base/principals.ts";
import { checkName } from "../../../shared/protocol/chat/presence.ts";
import { type ActorRow, actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import { AclRow, GateRow, HeadRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { aclOf, touchAcl } from "./acl.ts";
import { activationOf } from "./activation.ts";
import { outOfBounds, readActor } from "./actor-reads.ts";
import type { Enrolled, SignIn } from "./authority-type.ts";
import { normalised } from "./envelope.ts";
import { type PlaneParts, demandPlane, isNoPlane, refusal, settled } from "./parts.ts";
import type { Turns } from "../../../shared/ledger/turns.ts";

/** Names that only the service itself gives (§10 chat sessions, §13.1 service custody). */
const RESERVED_LEADS = ["chat_", "svc_"] as const;

/** `inTurn` keeps the new names of an owner apart. */
export async function enrol(parts: PlaneParts, inTurn: Turns, p: Principal, who: SignIn): Promise<Enrolled> {
  const alias = principal(p.owner, p.actor);
  const first = () => inTurn(p.owner, () => firstRow(parts, alias, who));
  const once = () => settled(parts, () => enrolOnce(parts, first, alias, who));
  const plane = parts.holdsPlane() ? undefined : parts.plane();
  if (plane === undefined) return once();
  try {
    return await once();
  } catch (thrown) {
    if (!isNoPlane(thrown)) throw thrown;
    await plane.begin(alias, who);
    return once();
  }
}

/** Somebody whose lifecycle has not begun, and what a first row says of him. */
export type Newcomer = { readonly by: "person"; readonly name: string } | { readonly by: "agent" };

/** The plane's half of it, for another instance that has the proof: the row and the lifecycle. */
export async function beginFor(parts: PlaneParts, inTurn: Turns, p: Principal, who: Newcomer): Promise<void> {
  const first = () => inTurn(p.owner, () => firstRow(parts, p, who));
  await settled(parts, async () => {
    const row = (await readActor(parts.ledger, p)) ?? (await first());
    await demandGranted(parts, row.value, p, who.by);
    await begun(parts, row, p);
  });
}

async function enrolOnce(
  parts: PlaneParts,
  first: () => Promise<Row<ActorRow>>,
  p: Principal,
  who: SignIn,
): Promise<Enrolled> {
  const { ledger } = parts;
  const row = (await readActor(ledger, p)) ?? (await first());
  await demandGranted(parts, row.value, p, who.by);
  if (who.by === "agent") demandSecret(row.value, who.secret);
  const { lifecycleUid: uid } = row.value;
  const current = await begun(parts, row, p);
  const credentialId = current?.currentCredentialId ?? rootCredentialId(uid, current?.processEpoch ?? 1);
  const rootExpires = Math.floor(parts.now() / 1000) + ROOT_LIFE_SECONDS;
  await enterCredential(ledger, { principal: p, uid, credentialId, expires: rootExpires });
  return { uid, credentialId, actor: row.value, rootExpires };
}

/** The head of the row's lifecycle if that has begun; else it is begun, or finished. */
async function begun(parts: PlaneParts, row: Row<ActorRow>, p: Principal): Promise<HeadRow | undefined> {
  const { lifecycleUid: uid } = row.value;
  const [head, gate] = await Promise.all([
    readRow(parts.ledger, "records", ledgerKey.head(p), HeadRow),
    readRow(parts.ledger, "auth", ledgerKey.gate(uid), GateRow),
  ]);
  const current = head?.value.state === "active" && head.value.lifecycleUid === uid ? head.value : undefined;
  if (current === undefined || gate?.value.state !== "open") await begin(parts, row, p);
  return current;
}

/** Is the row one that this kind of proof may use now? */
async function demandGranted(
  { ledger }: Pick<PlaneParts, "ledger">,
  row: ActorRow,
  p: Principal,
  by: SignIn["by"],
): Promise<void> {
  if (row.state === "revoked") {
    throw refusal(
      ErrorCode.PermissionDenied,
      `the grant of ${dotForm(p)} is revoked`,
      "ask the operator to grant it again: cotal actor grant",
    );
  }
  if (by === "person" && row.kind !== "interactive") {
    throw refusal(
      ErrorCode.PermissionDenied,
      `${dotForm(p)} is a managed agent: nobody signs in under its name`,
      "sign in under a name of your own",
    );
  }
  const outside = await outOfBounds(ledger, row);
  if (outside === undefined) return;
  throw refusal(
    ErrorCode.PermissionDenied,
    `${dotForm(p)} may not sign in: ${outside}`,
    "ask the operator for a narrower grant: cotal actor narrow",
  );
}

/** The row as `enrol` would find it, for who is enrolled already: a view makes no actor. */
export async function demandRow(parts: Pick<PlaneParts, "ledger">, p: Principal, by: SignIn["by"]): Promise<ActorRow> {
  const row = (await readActor(parts.ledger, p))?.value;
  if (row === undefined) throw ungranted(p);
  await demandGranted(parts, row, p, by);
  return row;
}

const ungranted = (p: Principal): CotalError =>
  refusal(
    ErrorCode.PermissionDenied,
    `${dotForm(p)} is granted nothing in this space`,
    "ask the operator for a grant: cotal actor grant",
  );

/** Is this the secret of that active managed agent (§10)? Whatever is wrong, the answer is the same. */
export async function proveAgent({ ledger }: Pick<PlaneParts, "ledger">, p: Principal, secret: string): Promise<void> {
  const row = (await readActor(ledger, principal(p.owner, p.actor)))?.value;
  if (row === undefined) throw notThatAgent();
  demandSecret(row, secret);
}

function demandSecret(row: ActorRow, secret: string): void {
  const { kind, secretDigest } = row;
  const given = createHash("sha256").update(secret).digest();
  const kept = Buffer.from(kind === "managed" ? (secretDigest ?? "") : "", "hex");
  if (kept.length !== given.length || !timingSafeEqual(kept, given)) throw notThatAgent();
}

const notThatAgent = (): CotalError =>
  refusal(
    ErrorCode.Unauthenticated,
    "this is not the secret of a managed agent of that name",
    "take the secret that its manager was given",
  );

/** Throws for a name that nobody chooses: a row under it would be nobody's, or stand beside another's lifecycle. */
export function demandChosen({ actor }: Principal): void {
  if (!RESERVED_LEADS.some((lead) => actor.startsWith(lead))) return;
  throw refusal(ErrorCode.PermissionDenied, `${actor} is a name that the service gives`, "choose another name");
}

/** Under the policy `auto` signing in is what makes an actor. */
async function firstRow(parts: PlaneParts, p: Principal, who: Newcomer): Promise<Row<ActorRow>> {
  const { ledger, policy, defaults, actorsPerOwner } = parts;
  if (who.by === "agent") throw notThatAgent();
  if (policy !== "auto" || !DERIVED_OWNER_TOKEN.test(p.owner) || parts.isReservedOwner(p.owner)) {
    throw ungranted(p);
  }
  demandChosen(p);
  await demandPlane(parts);
  const have = await ledger.keys("auth", actorKey.actorsOf(p.owner));
  if (have.length >= actorsPerOwner) {
    throw refusal(
      ErrorCode.ResourceExhausted,
      `this person has ${have.length} actors already, and ${actorsPerOwner} are allowed`,
      "use one of them: cotal actor list",
    );
  }
  const row: ActorRow = {
    v: 1,
    ...p,
    lifecycleUid: drawLifecycleUid(parts.random),
    state: "active",
    kind: "interactive",
    name: checkName(who.name),
    ...normalised(defaults),
    at: parts.now(),
  };
  await parts.tryMint(row);
  const revision = await ledger.create("auth", actorKey.actor(p), row);
  return { value: row, revision };
}

/** Activates the row's lifecycle, or finishes an activation that died. */
async function begin(parts: PlaneParts, row: Row<ActorRow>, p: Principal): Promise<void> {
  await demandPlane(parts);
  const { lifecycleUid: uid, role } = row.value;
  await activate(parts.ledger, activationOf(parts, "enrol", p, uid), async () => {
    await parts.makeDurables(p, uid, role);
    await createOrRead(parts.ledger, "acl", ledgerKey.acl(p, uid), AclRow, firstAcl(row.value, parts.now()));
    const now = await readActor(parts.ledger, p);
    if (now?.value.state !== "active" || now.value.lifecycleUid !== uid) {
      throw refusal(
        ErrorCode.PermissionDenied,
        `the grant of ${dotForm(p)} was revoked meanwhile`,
        "ask the operator to grant it again: cotal actor grant",
      );
    }
    // Whoever narrowed the row before this reading may have found no read ACL to narrow.
    if (now.revision !== row.revision) await touchAcl(parts, now.value, uid);
  });
}

function firstAcl(row: ActorRow, at: number): AclRow {
  return aclOf(row, rootCredentialId(row.lifecycleUid, 1), at);
}
