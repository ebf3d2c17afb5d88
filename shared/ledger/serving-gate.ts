/**
 * An instance's issuance gate: shut for a registration or a takeover, and opened at its epoch (§13.1).
 *
 * Invariants
 * 1. Somebody else's operation that stands still is finished under its own id before another begins, whatever its kind
 *    but an end, and only once `barrier` has proved its holder gone, who is the principal that the gate names
 *    (decision 43); nobody gets a credential by that.
 * 2. The epoch is last: when it moves, nothing of the predecessor can be used or is connected (`barrier`
 *    throws until that is proved).
 */
import { atOnce } from "../broker/at-once.ts";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { dotForm, drawLifecycleUid } from "../protocol/base/principals.ts";
import { stepEndpointGate } from "../protocol/ledger/endpoint-gate-machine.ts";
import {
  EndpointCredentialRow,
  EndpointGateRow,
  ServiceNameRow,
  ServingStage,
  endpointKey,
  servingPrincipal,
} from "../protocol/ledger/endpoint-rows.ts";
import { readReservation, reserve } from "./reservation.ts";
import { activationOf, isOpener, moved, refuse, takeoverOf } from "./serving-keys.ts";
import type { BeginRequest, Begun, OpenRequest, ServingParts } from "./serving-type.ts";
import { ROWS_AT_ONCE, type Row, createOrRead, readRow, rowOf } from "./store.ts";

/** Shuts the gate of an instance, a new one or one that is taken over. Throws `conflict` where it is to be asked again. */
export async function begin(parts: ServingParts, request: BeginRequest): Promise<Begun> {
  const name = await readRow(parts.ledger, "auth", endpointKey.name(request.endpoint), ServiceNameRow);
  if (name?.value.owner !== request.owner || name.value.endpoint !== request.endpoint) {
    throw refuse(
      ErrorCode.PermissionDenied,
      `the name ${request.endpoint} is not assigned to ${request.owner}`,
      `ask the operator of the space: cotal endpoint assign ${request.endpoint} --owner ${request.owner}`,
    );
  }
  return request.instanceId === undefined
    ? beginFirst(parts, request, name.revision)
    : takeOver(parts, request, request.instanceId);
}

async function beginFirst(parts: ServingParts, request: BeginRequest, nameRevision: number): Promise<Begun> {
  const { ledger, random, now } = parts;
  const { endpoint, owner, userKey } = request;
  const opId = activationOf(userKey);
  const staged = await createOrRead(ledger, "auth", endpointKey.stage(opId), ServingStage, {
    v: 1,
    opId,
    endpoint,
    owner,
    instanceId: drawLifecycleUid(random),
  });
  const { instanceId } = staged.value;
  if (staged.value.endpoint !== endpoint || staged.value.owner !== owner) {
    throw refuse(ErrorCode.AlreadyExists, "this key was registered for another endpoint", "draw a new key");
  }
  const who = servingPrincipal(owner, instanceId);
  const reserved = await reserve(ledger, { v: 1, lifecycleUid: instanceId, ...who, opId, at: now() });
  if (reserved.opId !== opId) throw refuse(ErrorCode.AlreadyExists, "the instance id is taken", "draw a new key");
  const { value } = await createOrRead(ledger, "auth", endpointKey.gate(endpoint, instanceId), EndpointGateRow, {
    state: "frozen",
    generation: 0,
    processEpoch: 1,
    registrationRevision: 0,
    nameAuthorityRevision: nameRevision,
    principal: dotForm(who),
    op: { opId, kind: "activation" },
  });
  const mine = value.state === "open" ? value.generation === 1 : value.op.opId === opId;
  if (!mine) throw moved(endpoint, instanceId);
  return { instanceId, opId, epoch: value.processEpoch };
}

async function takeOver(parts: ServingParts, request: BeginRequest, instanceId: string): Promise<Begun> {
  const { ledger } = parts;
  const { endpoint, owner, userKey } = request;
  // An instance that serves under custody is its host's alone (§13.1).
  await readReservation(ledger, instanceId);
  const key = endpointKey.gate(endpoint, instanceId);
  // Before the gate: so its epoch is never ahead of what the gate says.
  const held = await readRow(ledger, "auth", endpointKey.cred(endpoint, instanceId, userKey), EndpointCredentialRow);
  const gate = await readRow(ledger, "auth", key, EndpointGateRow);
  if (gate?.value.principal !== dotForm(servingPrincipal(owner, instanceId))) {
    throw refuse(
      ErrorCode.NotFound,
      `${endpoint} has no instance ${instanceId} of this owner`,
      "leave the instance out to register a new one",
    );
  }
  const { value } = gate;
  const opId = takeoverOf(userKey);
  if (held !== undefined && (held.value.state !== "active" || held.value.processEpoch !== value.processEpoch)) {
    // Before anything is frozen for it: its row is spent, so it could serve no epoch that it opens.
    throw refuse(ErrorCode.AlreadyExists, `this key has served ${instanceId} before`, "draw a new key");
  }
  if (value.state === "open") {
    if (held !== undefined || (await isOpener(parts, value, { instanceId, userKey }))) {
      // The answer to an earlier request of the same process was lost.
      return { instanceId, opId: value.lastTakeoverOpId ?? opId, epoch: value.processEpoch };
    }
    const frozen = stepEndpointGate(value, { to: "frozen", op: { opId, kind: "takeover" } });
    if (frozen.kind !== "move") throw moved(endpoint, instanceId);
    await ledger.cas("auth", key, frozen.row, gate.revision);
    return takeOver(parts, request, instanceId);
  }
  if (value.state === "retired" || value.op.kind === "retirement") {
    throw refuse(
      ErrorCode.FailedPrecondition,
      `the instance ${instanceId} of ${endpoint} is ${value.state} (${value.op.kind})`,
      "leave the instance out to register a new one",
    );
  }
  const { kind } = value.op;
  const begun = { instanceId, opId: value.op.opId, epoch: value.processEpoch + (kind === "takeover" ? 1 : 0) };
  const isMine = value.op.opId === (kind === "activation" ? activationOf(userKey) : opId);
  // Its own first registration has given nothing out, and goes on. Of everything else it is proved who is gone.
  if (!(isMine && kind === "activation")) {
    await parts.barrier(servingPrincipal(owner, instanceId), await revokeAll(parts, request, instanceId, gate));
  }
  if (isMine) return begun;
  await open(parts, { ...begun, endpoint, registrationRevision: value.registrationRevision });
  return takeOver(parts, request, instanceId);
}

/** Every credential of the instance up to the epoch that is ended, revoked when this resolves. */
async function revokeAll(
  { ledger }: ServingParts,
  { endpoint }: BeginRequest,
  instanceId: string,
  { value: frozen, revision }: Row<EndpointGateRow>,
): Promise<EndpointCredentialRow[]> {
  const after = { key: endpointKey.gate(endpoint, instanceId), revision };
  const family = endpointKey.credsOf(endpoint, instanceId);
  const rows = await ledger.scan({ bucket: "auth", family, after }, (key, found) => {
    const row = rowOf("auth", key, found, EndpointCredentialRow);
    if (row === undefined) throw refuse(ErrorCode.FailedPrecondition, `the row ${key} is gone`, "run cotal doctor");
    return { key, row };
  });
  // Somebody has finished this operation since the gate was read: that row is the successor's.
  if (rows.some(({ row }) => row.value.processEpoch > frozen.processEpoch)) {
    throw new CotalError(ErrorCode.Conflict, "the gate has moved on");
  }
  await atOnce(
    rows.filter(({ row }) => row.value.state === "active"),
    ROWS_AT_ONCE,
    ({ key, row }) => ledger.cas("auth", key, { ...row.value, state: "revoked" }, row.revision),
  );
  return rows.map(({ row }) => ({ ...row.value, state: "revoked" }));
}

/** Opens it, at the epoch that was begun. */
export async function open(parts: ServingParts, request: OpenRequest): Promise<void> {
  const { ledger } = parts;
  const { endpoint, instanceId, opId, epoch: processEpoch, registrationRevision } = request;
  const step = { opId, processEpoch, registrationRevision };
  const key = endpointKey.gate(endpoint, instanceId);
  const gate = await readRow(ledger, "auth", key, EndpointGateRow);
  const move = gate === undefined ? undefined : stepEndpointGate(gate.value, { to: "open", ...step });
  if (gate === undefined || move === undefined || move.kind === "refused") throw moved(endpoint, instanceId);
  if (move.kind === "move") await ledger.cas("auth", key, move.row, gate.revision);
}
