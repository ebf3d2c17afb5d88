/**
 * What the edge (callout, exchange) asks of the authority: every read that lets somebody in, and the
 * few writes that go with it (decision H45).
 *
 * Invariants
 * 1. Every read is a leader read, done for this one question; nothing is cached.
 * 2. `check` and `recheck` never throw for a state of the ledger: anything but a clear yes is a
 *    refusal. A ledger that can't be read refuses too, as `unavailable`.
 * 3. A refusal's reason is one plain line for a log and for the exchange's answer; it holds no secret.
 */
import type { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import type { Principal } from "../../../shared/protocol/base/principals.ts";
import type {
  CopiesTaken,
  DaemonEnterArgs,
  Narrowing,
  ServingAnswer,
  ServingArgs,
} from "../../../shared/protocol/endpoint/auth-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { PLAIN_VIEWS, View, ViewClaim } from "../../../shared/protocol/endpoint/views.ts";
import type { PresentedGrant } from "../../../shared/protocol/ledger/session-rows.ts";
import type { BearerAct as Bearer } from "../../../shared/trust/bearer.ts";
import type { ActorRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import type { ResolvedCapabilities } from "../../../shared/ledger/capabilities.ts";
import type { Row } from "../../../shared/ledger/store.ts";
import type { Manager, SelectionRefusal } from "./managers.ts";

/** The identity claims of a bearer, once its signature holds (`act`, §10). */
export type BearerAct = WithoutName<Bearer>;
type WithoutName<Act> = Act extends Bearer ? Omit<Act, "name"> : never;

/** Who signs in: a person whose proof holds, with the name to show for a new row; or an agent, by its secret. */
export type SignIn =
  | { readonly by: "person"; readonly issuer: string; readonly subject: string; readonly name: string }
  | { readonly by: "agent"; readonly secret: string };

/** An incarnation that may receive a bearer now. */
export type Enrolled = {
  readonly uid: string;
  /** The root credential's id, the same for every bearer of the incarnation. */
  readonly credentialId: string;
  /** The row as it was read; its lists are what the callout will mint. */
  readonly actor: ActorRow;
  /** Unix seconds: where the root's ledger row ends now. No bearer outlives it. */
  readonly rootExpires: number;
};

/** What a yes rested on; `recheck` proves that it still holds. Opaque to the edge. */
export type Stamp = {
  readonly act: BearerAct;
  readonly actorRevision: number;
  /** Every row of the auth bucket that was read, at the revision it had. */
  readonly rows: readonly { readonly key: string; readonly revision: number | undefined }[];
};

export type OpenedCommands = Pick<ResolvedCapabilities, "commands" | "serves">;

export type Checked =
  | {
      readonly ok: true;
      readonly actor: ActorRow;
      /** What its capabilities open now; nothing where it comes with a view. */
      readonly opened: OpenedCommands;
      /** Unix seconds: where the root's ledger row ends. */
      readonly rootExpires: number;
      readonly stamp: Stamp;
    }
  | { readonly ok: false; readonly code: ErrorCode; readonly reason: string };

export type Refused = { readonly ok: false; readonly code: ErrorCode; readonly reason: string };

/** What an exchange is asked for beside an identity. */
export type ViewRequest =
  | { readonly view: Exclude<(typeof PLAIN_VIEWS)[number], typeof View.DmReader> }
  /** The lifecycle that the proof was made for. */
  | { readonly view: typeof View.DmReader; readonly lifecycleUid: string }
  | { readonly view: typeof View.ManagerCaller; readonly managerInstanceId?: string | undefined }
  | { readonly view: typeof View.SessionCaller; readonly sessionGrant: PresentedGrant }
  | Extract<ViewClaim, { view: typeof View.TransferWriter }>;

export type Viewed =
  | { readonly ok: true; readonly claim: ViewClaim }
  /** `selection`: it failed because of which manager, and of nothing else (§10). */
  | (Refused & { readonly selection?: SelectionRefusal });

/** One connection that is about to be let in. */
export type Connect = {
  /** `user_nkey` of the callout request: the subject of the JWT. */
  readonly userKey: string;
  readonly connId: string;
  /** Unix seconds, of the JWT. */
  readonly iat: number;
  readonly exp: number;
};

/** The lists of one actor, as a grant names them. Channels are wire patterns. */
export type ActorLists = {
  readonly allowSubscribe: readonly string[];
  readonly allowPublish: readonly string[];
  readonly role?: string | undefined;
  readonly capabilities: readonly string[];
};

export type Grant = Principal &
  ActorLists & {
    readonly name: string;
    readonly kind: ActorRow["kind"];
    /** The actor that bounds this one. Its row must be active, and contain every list. */
    readonly parent?: Principal | undefined;
    readonly secretDigest?: string | undefined;
  };

export type ListedActors = {
  readonly actors: readonly ActorRow[];
  /** Keys whose row does not parse: told by name, never left out in silence. */
  readonly unreadable: readonly string[];
  readonly cursor?: number;
};

export type Authority = {
  /** The actor's row at the leader, whatever its state. Throws `failed-precondition` for a corrupt one. */
  readonly readActor: (p: Principal) => Promise<Row<ActorRow> | undefined>;
  /**
   * Makes sure that the incarnation may receive a bearer: row, lifecycle, root credential, head stamp,
   * all durable when it resolves. Safe to call again, and at once from many places. Throws
   * `permission-denied` (no row under the policy `granted`, or a revoked one), `failed-precondition`
   * (gate frozen or retired, lifecycle ending), `unavailable` (a new activation and no plane here).
   */
  readonly enrol: (p: Principal, who: SignIn) => Promise<Enrolled>;
  /** Is this the secret of an active managed agent? Throws `unauthenticated` if not, for whatever reason. */
  readonly proveAgent: (p: Principal, secret: string) => Promise<void>;
  /** What a bearer with a view will claim; a refusal writes nothing. Throws as `enrol` does for a row. */
  readonly chooseView: (p: Principal, by: SignIn["by"], request: ViewRequest) => Promise<Viewed>;
  /** Every manager of an owner that the ledger knows. */
  readonly managersOf: (owner: string) => Promise<readonly Manager[]>;
  /** For a bearer at connect time, and by the exchange after it has signed. */
  readonly check: (act: BearerAct) => Promise<Checked>;
  /** After signing, before the answer leaves. Never throws. */
  readonly recheck: (stamp: Stamp) => Promise<{ readonly ok: true } | Refused>;
  /**
   * Writes the create-only evidence `natkey.<userKey>` and brings the read-ACL row to what the JWT
   * will grant. Throws `already-exists` for a replayed user key, `conflict` if it can't settle.
   */
  readonly recordConnect: (checked: Extract<Checked, { ok: true }>, connect: Connect) => Promise<void>;
};

/** An actor as it is granted now; and where something was taken away, how far that has come. */
export type Changed = ActorRow & { readonly narrowing?: Narrowing };
export type Revoked = { readonly uid: string; readonly opId: string | undefined; readonly copies: CopiesTaken };

/** What the endpoint `auth` serves on top, for the operator. */
export type ActorAdministration = {
  readonly grant: (grant: Grant) => Promise<Changed>;
  readonly narrow: (p: Principal, lists: Partial<ActorLists>) => Promise<Changed>;
  readonly revoke: (p: Principal) => Promise<Revoked>;
  /** Rows for another daemon's own credentials; the caller is the holder. */
  readonly enterDaemon: (caller: Caller, args: DaemonEnterArgs) => Promise<{ readonly epoch?: number }>;
  /** The ledger's half of registering somebody's endpoint; the provisioner asks. */
  readonly serving: (caller: Caller, args: ServingArgs) => Promise<ServingAnswer>;
  readonly list: (page: { owner?: string | undefined; cursor?: number | undefined }) => Promise<ListedActors>;
};
