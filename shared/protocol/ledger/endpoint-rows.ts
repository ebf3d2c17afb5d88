/**
 * What the ledger and the registry hold of a serving instance (§13.1, supplement B): its issuance gate,
 * and its registration. Whether an instance is a candidate for a view is read from both.
 *
 * Invariants
 * 1. The gate is closed: an unknown field is corruption of an authority row and refuses; so is a gate of the
 *    service family (§13.1) under a name that is ours.
 * 2. A registration is a record that may grow: what is not known here is kept and not judged.
 */
import { z } from "zod";
import { ID_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN, USER_NKEY } from "../base/grammar.ts";
import { type Principal, parseDotForm, principal } from "../base/principals.ts";
import { endpointName, endpointToken, isEndpointName } from "../endpoint/grammar.ts";
import { CredentialRow, GateOperation } from "./rows.ts";

const count = z.int().nonnegative();

const coordinates = {
  generation: count,
  processEpoch: count,
  registrationRevision: count,
  nameAuthorityRevision: count,
  /** The serving instance's own connection principal. */
  principal: z.string().refine((text) => parseDotForm(text) !== undefined),
  /** The takeover that opened this epoch. */
  lastTakeoverOpId: z.string().optional(),
} as const;

export const EndpointGateRow = z.union([
  z.strictObject({ state: z.literal("open"), ...coordinates }),
  z.strictObject({ state: z.enum(["frozen", "retired"]), ...coordinates, op: GateOperation }),
]);
export type EndpointGateRow = z.infer<typeof EndpointGateRow>;

/** `servicename.<endpoint>`: whose name it is. Created once, by the operator's word; never moved. */
export const ServiceNameRow = z.strictObject({
  v: z.literal(1),
  kind: z.literal("service-name"),
  /** Identity key of the account that its clients connect to. */
  accountPublicKey: z.string(),
  space: z.string(),
  endpoint: z.string().refine(isEndpointName),
  owner: z.string().regex(PRINCIPAL_TOKEN),
  /** On whose word, and for which request. */
  claimReference: z.string().min(1).max(128),
  requestId: z.string().regex(ID_TOKEN),
  requestDigest: z.string(),
});
export type ServiceNameRow = z.infer<typeof ServiceNameRow>;

/** `epcred.<endpoint>.<instanceId>.<credentialId>`: the holder is the instance, and the name stands beside it. */
export const EndpointCredentialRow = z.strictObject({
  ...CredentialRow.shape,
  credentialId: z.string().regex(USER_NKEY),
  endpoint: z.string().refine(isEndpointName),
  processEpoch: count,
});
export type EndpointCredentialRow = z.infer<typeof EndpointCredentialRow>;

/** `stage.<opId>.serving`: a first registration that was begun. */
export const ServingStage = z.strictObject({
  v: z.literal(1),
  opId: z.string(),
  endpoint: z.string().refine(isEndpointName),
  owner: z.string().regex(PRINCIPAL_TOKEN),
  instanceId: z.string().regex(LIFECYCLE_UID),
});
export type ServingStage = z.infer<typeof ServingStage>;

/** Who a serving instance is on the broker: a principal of its own, so that ending it ends nobody else. */
export const servingPrincipal = (owner: string, instanceId: string): Principal => principal(owner, `svc_${instanceId}`);

/** `svc.<endpoint>.<instanceId>.spec`; its store revision is the `registrationRevision`. */
export const ServiceSpec = z.looseObject({
  endpoint: z.string().refine(isEndpointName),
  owner: z.string(),
});
export type ServiceSpec = z.infer<typeof ServiceSpec>;

/** `svc.<endpoint>.<instanceId>.status`. */
export const ServiceStatus = z.looseObject({ epoch: count, state: z.string() });
export type ServiceStatus = z.infer<typeof ServiceStatus>;

export const endpointKey = {
  gate: (endpoint: string, instanceId: string) => `epgate.${endpointToken(endpoint)}.${instanceId}`,
  name: (endpoint: string) => `servicename.${endpointToken(endpoint)}`,
  stage: (opId: string) => `stage.${opId}.serving`,
  cred: (endpoint: string, instanceId: string, credentialId: string) =>
    `epcred.${endpointToken(endpoint)}.${instanceId}.${credentialId}`,
  credsOf: (endpoint: string, instanceId: string) => `epcred.${endpointToken(endpoint)}.${instanceId}.*`,
  allGates: "epgate.>",
  gatesOf: (endpoint: string) => `epgate.${endpointToken(endpoint)}.*`,
  spec: (endpoint: string, instanceId: string) => `svc.${endpointToken(endpoint)}.${instanceId}.spec`,
  status: (endpoint: string, instanceId: string) => `svc.${endpointToken(endpoint)}.${instanceId}.status`,
} as const;

/** The instance that a gate's key names; `undefined` for a key that no gate has. */
export function instanceOfGate(endpoint: string, key: string): string | undefined {
  const lead = `epgate.${endpointToken(endpoint)}.`;
  const id = key.startsWith(lead) ? key.slice(lead.length) : "";
  return LIFECYCLE_UID.test(id) ? id : undefined;
}

/** The endpoint and the instance that a gate's key names; `undefined` for a key that no gate has. */
export function endpointOfGate(key: string): { readonly endpoint: string; readonly instanceId: string } | undefined {
  const endpoint = endpointName(key.split(".")[1] ?? "");
  const instanceId = isEndpointName(endpoint) ? instanceOfGate(endpoint, key) : undefined;
  return instanceId === undefined ? undefined : { endpoint, instanceId };
}
