/**
 * From named capabilities to the commands that they open (§9, §13.9): what the governance heads of the named
 * endpoints say now.
 *
 * Invariants
 * 1. One leader read for each endpoint that is named, all at once, and none where none is named.
 * 2. An endpoint that nobody registered opens nothing, and is named in the answer. A head that is corrupt
 *    refuses.
 * 3. Two capabilities of one endpoint open what either does; one command stands once.
 */
import type { GrantedCommand } from "../grants/client-profiles.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Capability, SERVE_CAPABILITY, opens, parseCapability } from "../protocol/endpoint/capabilities.ts";
import { recordKey } from "../protocol/ledger/record-kinds.ts";
import { GovernRow } from "../protocol/ledger/service-rows.ts";
import { type LedgerStore, readRow } from "./store.ts";

export type ResolvedCapabilities = {
  readonly commands: readonly GrantedCommand[];
  readonly serves: boolean;
  /** Endpoints that are named and that nobody has registered. */
  readonly unregistered: readonly string[];
};

type OfEndpoint = Extract<Capability, { kind: "endpoint" }>;

/** Throws `failed-precondition` for a head that is corrupt. */
export async function resolveCapabilities(
  ledger: Pick<LedgerStore, "read">,
  capabilities: readonly string[],
): Promise<ResolvedCapabilities> {
  const named = new Map<string, OfEndpoint[]>();
  for (const text of capabilities) {
    const one = parseCapability(text);
    if (one?.kind !== "endpoint") continue;
    named.set(one.endpoint, [...(named.get(one.endpoint) ?? []), one]);
  }
  const endpoints = [...named.keys()].toSorted();
  const heads = await Promise.all(endpoints.map((endpoint) => readHead(ledger, endpoint)));
  return {
    commands: heads.flatMap((head) => (head === undefined ? [] : opened(head, named.get(head.endpoint) ?? []))),
    serves: capabilities.includes(SERVE_CAPABILITY),
    unregistered: endpoints.filter((_, at) => heads[at] === undefined),
  };
}

async function readHead(ledger: Pick<LedgerStore, "read">, endpoint: string): Promise<GovernRow | undefined> {
  const key = recordKey("govern", { endpoint });
  const head = (await readRow(ledger, "records", key, GovernRow))?.value;
  if (head === undefined || head.endpoint === endpoint) return head;
  throw new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} names another endpoint`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

function opened({ endpoint, commands }: GovernRow, held: readonly OfEndpoint[]): GrantedCommand[] {
  return commands
    .flatMap((needed): GrantedCommand[] => {
      const by = held.filter((capability) => opens(capability, needed));
      if (by.length === 0) return [];
      const { command, modes } = needed;
      const scatter = by.some((capability) => capability.scatter);
      return [{ endpoint, command, scatter, ...(modes === undefined ? {} : { modes }) }];
    })
    .toSorted((a, b) => (a.command < b.command ? -1 : 1));
}
