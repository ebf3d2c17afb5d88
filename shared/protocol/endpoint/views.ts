/**
 * Views (§10): what a bearer may be other than an agent, and what each of them rests on.
 *
 * The exchange alone selects a view, and the callout asks the ledger again at every connect. A view is a
 * closed profile of the same name; nothing of the agent's own grants comes with it.
 *
 * Invariants
 * 1. A view that is not in the table does not exist: `service-endpoint` and the platform's and
 *    environments' families are issued by no exchange.
 * 2. A scope is a word among the capabilities of the actor's row; no scope implies another.
 */

/** Where an exchange listens: for programs of the same machine, or for everybody. */
export const Face = { Loopback: "loopback", Public: "public" } as const;
export type Face = (typeof Face)[keyof typeof Face];

/** What somebody has shown: a person's ID token, an agent's secret, or a token made for one purpose. */
export const ProofKind = { Person: "person", Agent: "agent", DmReader: "dm-reader" } as const;
export type ProofKind = (typeof ProofKind)[keyof typeof ProofKind];

export const View = {
  Admin: "admin",
  Purger: "purger",
  ChannelWriter: "channel-writer",
  ChannelPurger: "channel-purger",
  Deployer: "deployer",
  ManagerCaller: "manager-caller",
  SessionCaller: "session-caller",
  TransferWriter: "transfer-writer",
  DmReader: "dm-reader",
  ManagerService: "manager-service",
} as const;
export type View = (typeof View)[keyof typeof View];

/** Words of a row's capabilities that open something here. `spawn` widens the manager-caller view (§9). */
export const Scope = {
  Admin: "admin",
  Channels: "channels",
  Purge: "purge",
  Deploy: "deploy",
  Spawn: "spawn",
  Supervise: "supervise",
} as const;
export type Scope = (typeof Scope)[keyof typeof Scope];

export type ViewRule = {
  readonly faces: readonly Face[];
  readonly proof: readonly ProofKind[];
  /** What the actor's row must carry, at the exchange and at each connect. */
  readonly scope?: Scope;
  /** Known in order to be refused: the issue that needs it will issue it. */
  readonly unissued?: true;
};

const anywhere = [Face.Loopback, Face.Public];
const here = [Face.Loopback];
const person = [ProofKind.Person];

export const VIEWS: Readonly<Record<View, ViewRule>> = {
  [View.Admin]: { faces: here, proof: person, scope: Scope.Admin },
  [View.Purger]: { faces: here, proof: person, scope: Scope.Admin },
  [View.ChannelWriter]: { faces: anywhere, proof: person, scope: Scope.Channels },
  [View.ChannelPurger]: { faces: anywhere, proof: person, scope: Scope.Purge },
  [View.Deployer]: { faces: here, proof: person, scope: Scope.Deploy },
  [View.ManagerCaller]: { faces: anywhere, proof: [ProofKind.Person, ProofKind.Agent] },
  [View.SessionCaller]: { faces: anywhere, proof: person },
  [View.TransferWriter]: { faces: anywhere, proof: person, scope: Scope.Admin },
  [View.DmReader]: { faces: here, proof: [ProofKind.DmReader] },
  [View.ManagerService]: { faces: here, proof: person, scope: Scope.Supervise, unissued: true },
};

export function isView(text: string): text is View {
  return Object.hasOwn(VIEWS, text);
}
