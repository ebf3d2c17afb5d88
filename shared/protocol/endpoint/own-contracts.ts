/**
 * The contracts of this project's own endpoints. Each is compiled once in a process, when it is first asked
 * for: a command line that needs one does not pay for the others.
 *
 * Their descriptors are public (supplement A): what they serve stands in the source, and the grants say who
 * may call it.
 */
import { type Contract, compileContract } from "../contract/contract.ts";
import { type ClusterDeclaration } from "../contract/declare.ts";
import { type Validators, createValidators } from "../contract/validators.ts";
import { AUTH_CLUSTER } from "./auth-contract.ts";
import { DELIVERY_CLUSTER } from "./delivery-contract.ts";
import { EndpointName } from "./names.ts";
import { PROVISIONER_CLUSTER } from "./provisioner-contract.ts";
import { READS_CLUSTER } from "./reads-contract.ts";

const CLUSTERS = {
  [EndpointName.Provisioner]: [PROVISIONER_CLUSTER],
  [EndpointName.Auth]: [AUTH_CLUSTER],
  [EndpointName.Delivery]: [DELIVERY_CLUSTER, READS_CLUSTER],
} as const satisfies Partial<Record<EndpointName, readonly ClusterDeclaration[]>>;

/** An endpoint of this project that has a contract. */
export type OwnEndpoint = keyof typeof CLUSTERS;

export function isOwnEndpoint(name: string): name is OwnEndpoint {
  return Object.hasOwn(CLUSTERS, name);
}

const compiled = new Map<OwnEndpoint, Contract>();
let shared: Validators | undefined;

export function ownContract(endpoint: OwnEndpoint): Contract {
  const known = compiled.get(endpoint);
  if (known !== undefined) return known;
  const contract = compileContract(CLUSTERS[endpoint], (shared ??= createValidators()));
  compiled.set(endpoint, contract);
  return contract;
}
