/**
 * Managers as the ledger knows them (§10): which instances somebody may be sent to, from read-only
 * observations of issuance gates and registrations.
 *
 * Invariants
 * 1. A candidate has an open gate, a registration at the gate's own revision under the gate's own owner,
 *    and a status of the gate's own epoch. That says that it is registered, not that it answers.
 * 2. Somebody who has a manager of their own is never sent to the host's instead, whether theirs is
 *    available or not.
 * 3. A read that fails throws: it is never "there is none".
 */
import { type LedgerStore, readRow } from "../../../shared/ledger/store.ts";
import { type Principal, parseDotForm } from "../../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../../shared/protocol/endpoint/grammar.ts";
import {
  EndpointGateRow,
  ServiceSpec,
  ServiceStatus,
  endpointKey,
  instanceOfGate,
} from "../../../shared/protocol/ledger/endpoint-rows.ts";

export type Manager = {
  readonly instanceId: string;
  readonly principal: Principal;
  readonly epoch: number;
  /** Why it is no candidate now. */
  readonly unfit?: string;
};

/** Why a selection was refused: words of a closed list, for the caller and for metrics. */
export const SelectionRefusal = {
  None: "no-manager",
  Ambiguous: "ambiguous-manager",
  NotLive: "manager-not-live",
  OwnUnavailable: "own-manager-unavailable",
} as const;
export type SelectionRefusal = (typeof SelectionRefusal)[keyof typeof SelectionRefusal];

export type Selection =
  | { readonly ok: true; readonly manager: Manager }
  | { readonly ok: false; readonly refusal: SelectionRefusal };

type ManagerParts = {
  readonly ledger: LedgerStore;
  /** True for the owner that is the space itself: the host's own managers live under it. */
  readonly isReservedOwner: (owner: string) => boolean;
  /** The host's choice for people who name no manager (§10); nobody else can set it. */
  readonly localManager?: string | undefined;
};

const endpoint = EndpointName.Manager;

/** One instance as it stands, whoever owns it; `undefined` if it has no gate. */
async function readManager({ ledger }: Pick<ManagerParts, "ledger">, instanceId: string): Promise<Manager | undefined> {
  const [gate, spec, status] = await Promise.all([
    readRow(ledger, "auth", endpointKey.gate(endpoint, instanceId), EndpointGateRow),
    readRow(ledger, "records", endpointKey.spec(endpoint, instanceId), ServiceSpec),
    readRow(ledger, "records", endpointKey.status(endpoint, instanceId), ServiceStatus),
  ]);
  const principal = parseDotForm(gate?.value.principal ?? "");
  if (gate === undefined || principal === undefined) return undefined;
  const { state, registrationRevision, processEpoch: epoch } = gate.value;
  const faults = [
    [state !== "open", `its issuance gate is ${state}`],
    [spec === undefined || spec.revision !== registrationRevision, "its registration is another than its gate's"],
    [spec?.value.endpoint !== endpoint || spec.value.owner !== principal.owner, "its registration names another owner"],
    [status?.value.epoch !== epoch, "its status is of another start than its gate's"],
  ] as const;
  const [, unfit] = faults.find(([isSo]) => isSo) ?? [];
  return { instanceId, principal, epoch, ...(unfit === undefined ? {} : { unfit }) };
}

/** Every manager that has a gate and is this owner's, or the host's. */
async function managersFor(parts: ManagerParts, owner: string): Promise<{ own: Manager[]; host: Manager[] }> {
  const keys = await parts.ledger.keys("auth", endpointKey.gatesOf(endpoint));
  const ids = keys.map((key) => instanceOfGate(endpoint, key)).filter((id) => id !== undefined);
  const all = (await Promise.all(ids.map((id) => readManager(parts, id)))).filter((one) => one !== undefined);
  return {
    own: all.filter(({ principal }) => principal.owner === owner),
    host: all.filter(({ principal }) => parts.isReservedOwner(principal.owner)),
  };
}

/** What `POST /manager-instances` shows: every manager of this owner, fit or not. */
export async function ownManagers(parts: ManagerParts, owner: string): Promise<readonly Manager[]> {
  return (await managersFor(parts, owner)).own;
}

/** Is this instance one that this owner may be sent to now? Asked at every connect, and for a named one. */
export async function demandManager(parts: ManagerParts, owner: string, instanceId: string): Promise<Selection> {
  const found = await readManager(parts, instanceId);
  const reaches =
    found?.unfit === undefined &&
    found !== undefined &&
    (found.principal.owner === owner || parts.isReservedOwner(found.principal.owner));
  return reaches ? { ok: true, manager: found } : { ok: false, refusal: SelectionRefusal.NotLive };
}

/** Selects for one request. The host's own choice, if it has made one, is for people who name none. */
export async function selectManager(
  parts: ManagerParts,
  owner: string,
  request: { readonly pinned?: string | undefined; readonly person: boolean },
): Promise<Selection> {
  if (request.pinned !== undefined) return demandManager(parts, owner, request.pinned);
  if (request.person && parts.localManager !== undefined) return demandManager(parts, owner, parts.localManager);
  const { own, host } = await managersFor(parts, owner);
  const among = own.length > 0 ? own : host;
  const fit = among.filter(({ unfit }) => unfit === undefined);
  const [only] = fit;
  if (fit.length > 1) return { ok: false, refusal: SelectionRefusal.Ambiguous };
  if (only !== undefined) return { ok: true, manager: only };
  return { ok: false, refusal: own.length > 0 ? SelectionRefusal.OwnUnavailable : SelectionRefusal.None };
}
