/**
 * The ledger's half of serving an endpoint (§13.1): whose name it is, an instance's issuance gate, and the
 * credentials that it serves with.
 *
 * A first registration: stage · reserve the id · gate born frozen · (spec, by whoever registers) · gate
 * opened · credential row · gate touched. A takeover of the same instance: gate frozen · every credential
 * revoked · `barrier` · epoch and reopening in one compare-and-set · credential row · gate touched.
 *
 * Invariants
 * 1. A name has one owner for good (§13.2); an instance id is drawn here, reserved like a lifecycle's UID,
 *    and never used again.
 * 2. An operation's id comes from the user key that asks, so a retry converges, and of two processes that
 *    take one instance over at once the last one serves and the other is refused.
 * 3. Somebody else's operation that stands still is finished under its own id before another begins, whatever its kind
 *    but an end, and only once `barrier` has proved its holder gone, who is the principal that the gate names
 *    (decision 43); nobody gets a credential by that. An epoch is served by the key that opened it and by no other; a
 *    key that an instance was taken from never serves it again.
 * 4. The epoch is last: when it moves, nothing of the predecessor can be used or is connected (`barrier`
 *    throws until that is proved).
 * 5. A credential has its row, and the gate was open at its epoch after that row was written, before it
 *    leaves.
 */
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, type RandomBytes, dotForm, drawLifecycleUid } from "../protocol/base/principals.ts";
import {
  EndpointCredentialRow,
  EndpointGateRow,
  ServiceNameRow,
  ServingStage,
  endpointKey,
  servingPrincipal,
} from "../protocol/ledger/endpoint-rows.ts";
import { stepEndpointGate } from "../protocol/ledger/endpoint-gate-machine.ts";
import { atOnce } from "../broker/at-once.ts";
import { isConflict } from "./moves.ts";
import { readReservation, reserve } from "./reservation.ts";
import { type LedgerStore, type Row, createOrRead, readRow, rowOf, ROWS_AT_ONCE } from "./store.ts";

export type ServingParts = {
  readonly ledger: LedgerStore;
  readonly space: string;
  /** Identity key of the account that clients connect to. */
  readonly accountKey: string;
  /**
   * Proves that nothing of these credentials can be used any more and that nobody is connected as their
   * holder. Throws until it is so.
   */
  readonly barrier: (holder: Principal, revoked: readonly EndpointCredentialRow[]) => Promise<void>;
  /** Epoch milliseconds. */
  readonly now: () => number;
  readonly random: RandomBytes;
};

export type AssignRequest = { readonly endpoint: string; readonly owner: string; readonly by: Principal };

export type BeginRequest = {
  readonly endpoint: string;
  /** Who asks; the name must be his. */
  readonly owner: string;
  /** The key that will serve. */
  readonly userKey: string;
  /** The instance that it takes over; absent: a new one. */
  readonly instanceId?: string | undefined;
};

/** An instance whose gate is shut, until its registration stands. */
export type Begun = {
  readonly instanceId: string;
  readonly opId: string;
  /** The epoch that `open` will give. */
  readonly epoch: number;
};

export type OpenRequest = Begun & { readonly endpoint: string; readonly registrationRevision: number };

export type EnterRequest = {
  readonly endpoint: string;
  readonly owner: string;
  readonly instanceId: string;
  readonly epoch: number;
  readonly userKey: string;
  /** Unix seconds. */
  readonly expires: number;
};

/** What registering asks of whoever writes the ledger (decisions H14, H45). Every call converges. */
export type ServingLedger = {
  /** Gives a name to an owner; throws `already-exists` if it is another's. */
  readonly assign: (request: AssignRequest) => Promise<void>;
  /** Throws `permission-denied` unless the name is the owner's. */
  readonly begin: (request: BeginRequest) => Promise<Begun>;
  readonly open: (request: OpenRequest) => Promise<void>;
  /** Throws `expired` for an epoch that is over. */
  readonly enter: (request: EnterRequest) => Promise<void>;
};

const ROUNDS = 8;

export function servingLedger(parts: ServingParts): ServingLedger {
  return {
    assign: (request) => assign(parts, request),
    begin: (request) => settled(() => begin(parts, request)),
    open: (request) => settled(() => open(parts, request)),
    enter: (request) => enter(parts, request),
  };
}

async function assign({ ledger, space, accountKey }: ServingParts, { endpoint, owner, by }: AssignRequest) {
  const requestDigest = canonicalDigest({ endpoint, owner });
  const { value } = await createOrRead(ledger, "auth", endpointKey.name(endpoint), ServiceNameRow, {
    v: 1,
    kind: "service-name",
    accountPublicKey: accountKey,
    space,
    endpoint,
    owner,
    claimReference: dotForm(by),
    requestId: `assign-${requestDigest.slice(-32)}`,
    requestDigest,
  });
  if (value.owner === owner && value.endpoint === endpoint) return;
  throw refuse(ErrorCode.AlreadyExists, `the name ${endpoint} belongs to another owner`, "choose another name");
}

async function begin(parts: ServingParts, request: BeginRequest): Promise<Begun> {
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

const activationOf = (userKey: string): string => `serve-${userKey}`;
const takeoverOf = (userKey: string): string => `take-${userKey}`;

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

/** Did this key open the epoch that the gate stands at? */
async function isOpener(
  { ledger }: ServingParts,
  { lastTakeoverOpId }: EndpointGateRow,
  { instanceId, userKey }: Pick<EnterRequest, "instanceId" | "userKey">,
): Promise<boolean> {
  if (lastTakeoverOpId !== undefined) return lastTakeoverOpId === takeoverOf(userKey);
  const staged = await readRow(ledger, "auth", endpointKey.stage(activationOf(userKey)), ServingStage);
  return staged?.value.instanceId === instanceId;
}

async function open(parts: ServingParts, request: OpenRequest): Promise<void> {
  const { ledger } = parts;
  const { endpoint, instanceId, opId, epoch: processEpoch, registrationRevision } = request;
  const step = { opId, processEpoch, registrationRevision };
  const key = endpointKey.gate(endpoint, instanceId);
  const gate = await readRow(ledger, "auth", key, EndpointGateRow);
  const move = gate === undefined ? undefined : stepEndpointGate(gate.value, { to: "open", ...step });
  if (gate === undefined || move === undefined || move.kind === "refused") throw moved(endpoint, instanceId);
  if (move.kind === "move") await ledger.cas("auth", key, move.row, gate.revision);
}

async function enter(parts: ServingParts, request: EnterRequest): Promise<void> {
  const wrote = { row: false };
  await settled(() => enterOnce(parts, request, wrote));
}

async function enterOnce(parts: ServingParts, request: EnterRequest, wrote: { row: boolean }): Promise<void> {
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

async function settled<T>(run: () => Promise<T>): Promise<T> {
  for (let round = 1; ; round += 1) {
    try {
      return await run();
    } catch (error) {
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
  }
}

function moved(endpoint: string, instanceId: string): CotalError {
  return refuse(
    ErrorCode.Expired,
    `this process does not serve ${endpoint} as ${instanceId} any more: another one has taken its place`,
    "stop it, or register again",
  );
}

function refuse(code: ErrorCode, message: string, next: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
}
