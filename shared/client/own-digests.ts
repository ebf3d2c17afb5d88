/**
 * Digests of the commands of this project's own endpoints, which a caller pins (§13.3). Its shapes stand in
 * this source, so nothing has to be described or fetched; and nothing is compiled: a short command line
 * would pay for it.
 */
import type { ClusterDeclaration } from "../protocol/contract/declare.ts";
import { zodClosure } from "../protocol/contract/zod-schema.ts";
import { AUTH_CLUSTER } from "../protocol/endpoint/auth-contract.ts";
import { DELIVERY_CLUSTER } from "../protocol/endpoint/delivery-contract.ts";
import { EndpointName } from "../protocol/endpoint/names.ts";
import { PROVISIONER_CLUSTER } from "../protocol/endpoint/provisioner-contract.ts";
import { READS_CLUSTER } from "../protocol/endpoint/reads-contract.ts";
import type { Digests } from "./request.ts";

const CLUSTERS: ReadonlyMap<string, readonly ClusterDeclaration[]> = new Map<string, readonly ClusterDeclaration[]>([
  [EndpointName.Provisioner, [PROVISIONER_CLUSTER]],
  [EndpointName.Auth, [AUTH_CLUSTER]],
  [EndpointName.Delivery, [DELIVERY_CLUSTER, READS_CLUSTER]],
]);

const known = new Map<string, Digests>();

/** `undefined` for a command that is none of ours. */
export function ownDigests(endpoint: string, command: string): Digests | undefined {
  const key = `${endpoint} ${command}`;
  const found = known.get(key);
  if (found !== undefined) return found;
  const declared = CLUSTERS.get(endpoint)
    ?.flatMap(({ commands }) => commands)
    .find(({ name }) => name === command);
  if (declared === undefined) return undefined;
  const digests = { inputDigest: zodClosure(declared.input).digest, outputDigest: zodClosure(declared.output).digest };
  known.set(key, digests);
  return digests;
}
