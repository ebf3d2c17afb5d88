/**
 * Serving the endpoint `delivery`: its own commands on one connection in front, the mediated reads on another.
 *
 * Invariant: reads, proofs of delivery, what the daemons ask, and all else have places of their own (decision 44). No
 * flood of reads holds up a membership, and nothing that a member may ask the end of somebody's connections: whoever is
 * thrown out could else prevent it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Registration } from "../../shared/client/registered.ts";
import { BARRIER_COMMANDS, DeliveryCommand, RELOAD_COMMANDS, ReadCommand } from "../../shared/grants/commands.ts";
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
/** What nobody but a daemon may ask. */
const DAEMONS: ReadonlySet<string> = new Set([...BARRIER_COMMANDS, ...RELOAD_COMMANDS, DeliveryCommand.AclSwept]);

/** Bytes of what a member asks: it names one channel of 4,096 characters, or an id. */
const LONGEST_OF_MEMBER = 16 * 1024;

const LANES = [
  ["reads", READS],
  ["proofs", PROOFS],
  ["daemons", DAEMONS],
] as const;

/** Commands of one lane share places. */
export const deliveryLane = (command: string): string =>
  LANES.find(([, commands]) => commands.has(command))?.[0] ?? "members";

export function serveDelivery(
  { space, concurrency, perCaller, onServed }: Serving,
  { front, readFront, incarnation, registration, handlers }: Served,
): Promise<ServedEndpoint> {
  return serveEndpoint({
    nc: front,
    heardOn: (command) => (READS.has(command) ? readFront : front),
    lane: deliveryLane,
    longest: (command) => (DAEMONS.has(command) ? Infinity : LONGEST_OF_MEMBER),
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
