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
 * 3. A claim of a view stands with that view alone.
 */
import { z } from "zod";
import { ID_TOKEN, LIFECYCLE_UID } from "../base/grammar.ts";
import { isEndpointName } from "./grammar.ts";

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

/** Views that carry no claim of their own. */
export const PLAIN_VIEWS = [
  View.Admin,
  View.Purger,
  View.ChannelWriter,
  View.ChannelPurger,
  View.Deployer,
  View.DmReader,
] as const;

const count = z.int().nonnegative();

/** The one manager instance that every request of the connection goes to. */
export const ManagerCallerClaim = z.strictObject({
  view: z.literal(View.ManagerCaller),
  managerInstanceId: z.string().regex(LIFECYCLE_UID),
});

/** The one session (§13.6); `exp` in Unix seconds, the grant's. */
export const SessionCallerClaim = z.strictObject({
  view: z.literal(View.SessionCaller),
  session: z.strictObject({
    endpoint: z.string().refine(isEndpointName),
    sessionId: z.string().regex(ID_TOKEN),
    epoch: count,
    exp: count,
  }),
});

/** The one object of one manager instance's transfer bucket (§8). */
export const TransferWriterClaim = z.strictObject({
  view: z.literal(View.TransferWriter),
  transferWriter: z.strictObject({
    instanceId: z.string().regex(LIFECYCLE_UID),
    /** SHA-256 of the transcript. */
    hex: z.string().regex(/^[0-9a-f]{64}$/),
  }),
});

/** What a view adds to the identity of a bearer. */
export type ViewClaim =
  | { readonly view?: undefined }
  | { readonly view: (typeof PLAIN_VIEWS)[number] }
  | z.infer<typeof ManagerCallerClaim>
  | z.infer<typeof SessionCallerClaim>
  | z.infer<typeof TransferWriterClaim>;

export function isView(text: string): text is View {
  return Object.hasOwn(VIEWS, text);
}
