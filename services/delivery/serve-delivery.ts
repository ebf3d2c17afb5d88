/**
 * Serving the endpoint `delivery`: its own commands on one connection in front, the mediated reads on another; these,
 * proofs of delivery and all else have places of their own, so that no flood of either holds up a membership or the
 * end of somebody's connections.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Registration } from "../../shared/client/registered.ts";
import { DeliveryCommand, ReadCommand } from "../../shared/grants/commands.ts";
import { EndpointName, type Incarnation } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type HandlerTable, type ServedEndpoint, type ServedEvent, serveEndpoint } from "../../shared/serve/serve.ts";

export type Serving = {
  readonly space: string;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
};

export type Served = {
  readonly front: NatsConnection;
  /** Where the reads are heard. */
  readonly readFront: NatsConnection;
  readonly incarnation: Incarnation;
  readonly registration: Registration;
  readonly handlers: HandlerTable;
};

const READS: ReadonlySet<string> = new Set(Object.values(ReadCommand));
/** Each looks at much, and nothing else waits for one. */
const PROOFS: ReadonlySet<string> = new Set([DeliveryCommand.Pending, DeliveryCommand.Proof]);

const laneOf = (command: string): string => (READS.has(command) ? "reads" : PROOFS.has(command) ? "proofs" : "");

export function serveDelivery(
  { space, concurrency, perCaller, onServed }: Serving,
  { front, readFront, incarnation, registration, handlers }: Served,
): Promise<ServedEndpoint> {
  return serveEndpoint({
    nc: front,
    heardOn: (command) => (READS.has(command) ? readFront : front),
    lane: laneOf,
    space,
    endpoint: EndpointName.Delivery,
    ...incarnation,
    contract: ownContract(EndpointName.Delivery),
    handlers,
    registrationRevision: registration.revision,
    publicDescriptor: true,
    concurrency,
    perCaller,
    onServed,
    now: () => performance.now(),
  });
}
