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
import { LIFECYCLE_UID } from "../base/grammar.ts";
import { parseDotForm } from "../base/principals.ts";
import { endpointToken, isEndpointName } from "../endpoint/grammar.ts";
import { GateOperation } from "./rows.ts";

const count = z.int().nonnegative();

const coordinates = {
  generation: count,
  processEpoch: count,
  registrationRevision: count,
  nameAuthorityRevision: count,
  /** The serving instance's own connection principal. */
  principal: z.string().refine((text) => parseDotForm(text) !== undefined),
} as const;

export const EndpointGateRow = z.union([
  z.strictObject({ state: z.literal("open"), ...coordinates }),
  z.strictObject({ state: z.enum(["frozen", "retired"]), ...coordinates, op: GateOperation }),
]);
export type EndpointGateRow = z.infer<typeof EndpointGateRow>;

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
