/** The ledger of serving instances over a ledger in memory: who is who, and one registration from end to end. */
import type { Begun, ServingLedger, ServingParts } from "../../shared/ledger/serving-type.ts";
import { servingLedger } from "../../shared/ledger/serving.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { EndpointCredentialRow, EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { type MemoryLedger, memoryLedger } from "./memory-ledger.ts";
import { NOW_MS, OWNER, SYSTEM, seededBytes } from "./plane-parts.ts";

export const ENDPOINT = "com.acme.deploy";
export const OPERATOR = principal(SYSTEM, "operator");
export const EXPIRES = NOW_MS / 1000 + 600;

/** A user key of one letter. */
export const userKey = (letter: string): string => `U${letter.repeat(55)}`;

/** The keys of those who serve, or want to. */
export const A = userKey("A");
export const B = userKey("B");
export const C = userKey("C");
export const D = userKey("D");

export function servingParts(ledger: LedgerStore, over: Partial<ServingParts> = {}): ServingParts {
  return {
    ledger,
    space: "main",
    accountKey: `A${"F".repeat(55)}`,
    barrier: () => Promise.resolve(),
    gatePage: () => Promise.resolve({ rows: [] }),
    now: () => NOW_MS,
    random: seededBytes,
    ...over,
  };
}

export const servingOver = (ledger: LedgerStore, over: Partial<ServingParts> = {}): ServingLedger =>
  servingLedger(servingParts(ledger, over));

export const assigned = (serving: ServingLedger): Promise<void> =>
  serving.assign({ endpoint: ENDPOINT, owner: OWNER, by: OPERATOR });

/** A ledger in which the endpoint is assigned, and nobody serves it yet. */
export async function assignedLedger(): Promise<{ readonly ledger: MemoryLedger; readonly serving: ServingLedger }> {
  const ledger = memoryLedger();
  const serving = servingOver(ledger.store());
  await assigned(serving);
  return { ledger, serving };
}

/** An instance of the endpoint that a ledger knows. */
export type Instance = { readonly ledger: MemoryLedger; readonly instanceId: string };

/** One that the key A serves, at epoch 1. */
export async function served(): Promise<Instance> {
  const { ledger, serving } = await assignedLedger();
  const { instanceId } = await registered(serving, { userKey: A });
  return { ledger, instanceId };
}

/** One whose first registration died with its gate shut, as it was born. */
export async function unborn(): Promise<Instance> {
  const { ledger, serving } = await assignedLedger();
  return { ledger, instanceId: (await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A })).instanceId };
}

export type Registration = {
  readonly userKey: string;
  readonly instanceId?: string | undefined;
  readonly revision?: number;
  readonly owner?: string;
};

/** What a registration asks of the ledger, in its order. */
export async function registered(serving: ServingLedger, registration: Registration): Promise<Begun> {
  const { userKey: key, instanceId, revision = 7, owner = OWNER } = registration;
  const begun = await serving.begin({ endpoint: ENDPOINT, owner, userKey: key, instanceId });
  await serving.open({ ...begun, endpoint: ENDPOINT, registrationRevision: revision });
  await serving.enter(entryOf(begun, key, owner));
  return begun;
}

export const entryOf = ({ instanceId, epoch }: Omit<Begun, "opId">, key: string, owner = OWNER) => ({
  endpoint: ENDPOINT,
  owner,
  instanceId,
  epoch,
  userKey: key,
  expires: EXPIRES,
});

export const gateOf = (ledger: MemoryLedger, instanceId: string): EndpointGateRow =>
  EndpointGateRow.parse(ledger.row("auth", endpointKey.gate(ENDPOINT, instanceId)));

/** Every credential row of the endpoint. */
export const credentialsOf = (ledger: MemoryLedger): EndpointCredentialRow[] =>
  ledger
    .keys("auth")
    .filter((key) => key.startsWith("epcred."))
    .map((key) => EndpointCredentialRow.parse(ledger.row("auth", key)));

export const activeOf = (ledger: MemoryLedger): string[] =>
  credentialsOf(ledger)
    .filter(({ state }) => state === "active")
    .map(({ credentialId, processEpoch }) => `${credentialId.slice(1, 2)}${processEpoch}`);
