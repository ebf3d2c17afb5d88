/** What every command of one space is given: its connections, its keys, its settings. */
import type { NatsConnection } from "@nats-io/transport-node";
import type { Connection } from "../../shared/broker/connect.ts";
import type { StoredEntry } from "../../shared/broker/reads.ts";
import type { Writer } from "../../shared/broker/write.ts";
import type { ServingLedger } from "../../shared/ledger/serving-type.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import type { SpaceNames } from "../../shared/protocol/base/names.ts";
import type { Principal, RandomBytes } from "../../shared/protocol/base/principals.ts";
import type { SpaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { OwnEndpoint } from "../../shared/protocol/endpoint/own-contracts.ts";
import type { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import type { Buckets } from "../../shared/serve/buckets.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { ProvisionerKeys } from "./keys.ts";

export type GateReader = (uid: string) => Promise<StoredEntry | undefined>;

/** Who may be let in, where this daemon decides: in a space with static credentials. */
export type Authority = {
  readonly keys: ProvisionerKeys;
  readonly ledger: LedgerStore;
  /** A gate as it is stored, over the ledger's own connection: nobody else touches that store (supplement E). */
  readonly gate: GateReader;
  /** A connection that lives for one clean-up, under a credential for exactly that lifecycle. */
  readonly cleaner: (target: {
    readonly principal: { readonly owner: string; readonly actor: string };
    readonly uid: string;
  }) => Promise<Connection>;
};

/** What registering somebody else's endpoint needs, where identities are proved. */
export type Serving = {
  readonly ledger: ServingLedger;
  /** Identity key of the account that clients connect to, and a signing key of it. */
  readonly accountKey: string;
  readonly signer: SigningKey;
  /** Life of a serve credential. */
  readonly lifeSeconds: number;
  /** The owner that a text means: a token, or a label of a space with static credentials. */
  readonly ownerOf: (text: string) => string;
};

export type SpaceContext = {
  readonly space: string;
  readonly names: SpaceNames;
  readonly subjects: SpaceSubjects;
  readonly store: NatsConnection;
  readonly writer: Writer;
  readonly settings: SpaceSettings;
  readonly authority: Authority | undefined;
  readonly serving: Serving | undefined;
  /** How often an owner may register instances. */
  readonly registrations: Buckets;
  /** Who the daemon of this name is here. */
  readonly daemon: (name: OwnEndpoint) => Principal;
  /** A connection that lives for one removal of chat history; an open space needs none. */
  readonly purger: (() => Promise<Connection>) | undefined;
  readonly replicas: 1 | 3;
  /** Epoch milliseconds. */
  readonly now: () => number;
  readonly random: RandomBytes;
};

/** The authority of a space with static credentials; refuses in the other modes and says what to do. */
export function staticAuthority(context: SpaceContext): Authority {
  const { authority, settings } = context;
  if (authority !== undefined) return authority;
  if (settings.auth === "open") {
    throw refused("this space is open: it has no credentials", "connect without one: cotal send, tail, … --as ACTOR");
  }
  throw refused("people sign in to this space; it mints no static credentials", "sign in instead: cotal login");
}

function refused(why: string, next: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, why, { outcome: Outcome.NotExecuted, next });
}
