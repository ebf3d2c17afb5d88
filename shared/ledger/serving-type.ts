/** What registering asks of whoever writes the ledger, and what that asks of its process (§13.1). */
import type { Principal, RandomBytes } from "../protocol/base/principals.ts";
import type { EndpointCredentialRow } from "../protocol/ledger/endpoint-rows.ts";
import type { GatePage, HeldEndpointGates } from "./serving-held.ts";
import type { LedgerStore } from "./store.ts";

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
  /** A page of the gates of all instances, read from the leader. */
  readonly gatePage: (cursor: number | undefined) => Promise<GatePage>;
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
  /** Gates that an operation holds frozen, a page of gates at a time. */
  readonly held: (cursor: number | undefined) => Promise<HeldEndpointGates>;
};
