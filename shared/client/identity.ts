/**
 * Who a session is: from a credential file, from the exchange for somebody who signs in or an agent with
 * a secret (`user-identity.ts`), or from the caller's word in an open space.
 *
 * Invariants
 * 1. With a static credential the principal is the one its grant names; a differing one in the
 *    options fails here, before anything is dialled (§2).
 * 2. The credential file is read again at each dial. One that has become another identity's is
 *    refused: durables, subjects and the inbox of this session belong to the first.
 * 3. The nkey keys nothing but the connection; the inbox prefix comes from the uid (decision H61).
 */
import type { Authenticator, ConnectOptions } from "../broker/connect.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import {
  OPEN_OWNER,
  type Principal,
  type RandomBytes,
  dotForm,
  drawLifecycleUid,
  drawNonce,
  isLifecycleUid,
  principal,
} from "../protocol/base/principals.ts";
import { inboxPrefix } from "../protocol/base/broker-subjects.ts";
import { spaceToken } from "../protocol/base/subjects.ts";
import { roleDurable } from "../protocol/base/names.ts";
import { checkName } from "../protocol/chat/presence.ts";
import type { LinkSecret } from "../protocol/chat/join-link.ts";
import type { Supply } from "../broker/supply.ts";
import type { AgentView, AskedView } from "../protocol/endpoint/exchange-shapes.ts";
import { type Credential, parseCreds, readCredsFile } from "../trust/creds.ts";
import type { AgentSecret } from "./agent-secret.ts";
import type { ExchangeAt, Exchanged } from "./exchange.ts";

export type LocalCredentials =
  /** A credential file that `cotal mint` wrote, or its text. */
  | { readonly kind: "static"; readonly file: string }
  | { readonly kind: "static"; readonly text: string }
  /**
   * An open space: nothing proves who one is. `uid` is what makes an inbox survive a restart: keep
   * it (decision H37). Without one the session starts with an empty inbox of its own.
   */
  | { readonly kind: "open"; readonly actor: string; readonly uid?: string; readonly secret?: LinkSecret };

/** Somebody who signs in: each connection is made with a short-lived bearer of the exchange (§10). */
export type UserCredentials = {
  readonly kind: "user";
  /** Where the exchange is; a function is asked at each request. */
  readonly exchange: ExchangeAt | (() => ExchangeAt);
  /** A token of the space's identity provider; asked for at each exchange, so that it may be renewed. */
  readonly idToken: () => Promise<string>;
  readonly actor: string;
  readonly space: string;
  /** A closed profile in place of the agent's, with what it asks for, if the exchange grants it (§10). */
  readonly asks?: AskedView;
};

/** A managed agent: the secret that its manager was given opens the exchange, in place of a sign-in (§10). */
export type AgentCredentials = {
  readonly kind: "agent";
  /** Where the exchange is; a function is asked at each request. */
  readonly exchange: ExchangeAt | (() => ExchangeAt);
  /** Of whom it is an agent: the owner token that its grant names. */
  readonly owner: string;
  readonly actor: string;
  readonly space: string;
  readonly asks?: AgentView;
} & AgentSecret;

/** Bearers from somewhere else than the exchange: a chat session's, for one (`chat-session.ts`). */
export type BearerCredentials = {
  readonly kind: "bearer";
  readonly space: string;
  readonly actor: string;
  /** Asks for one bearer; asked again before each ends. */
  readonly fetch: (signal: AbortSignal) => Promise<Exchanged>;
};

/** Of people, agents and operators, as they are named. */
export type Credentials = LocalCredentials | UserCredentials;

/** Everything a session may be opened with. */
export type SessionCredentials = Credentials | AgentCredentials | BearerCredentials;

export type IdentityOptions<C extends SessionCredentials = SessionCredentials> = {
  readonly credentials: C;
  readonly space?: string;
  /** The principal that the caller believes to be, dot-form. */
  readonly principal?: string;
  readonly name?: string;
  readonly role?: string;
};

export type Mode = "open" | "auth";

export type Identity = {
  readonly mode: Mode;
  readonly space: string;
  readonly principal: Principal;
  /** Dot-form of the principal. */
  readonly id: string;
  readonly uid: string;
  readonly name: string;
  readonly role?: string;
  readonly inboxPrefix: string;
  readonly authenticator?: Authenticator;
  /** What fetches the bearers of somebody who signs in; the connection's to close. */
  readonly supply?: Supply;
  /** The name that the connection must have (decision H61), where the callout looks at it. */
  readonly connectionName?: string;
  /** The read list of the credential; `undefined` in an open space. Display only. */
  readonly allowSubscribe?: readonly string[];
  readonly allowPublish?: readonly string[];
};

/** An identity that is known without asking anybody. */
export function resolveIdentity(options: IdentityOptions<LocalCredentials>, random: RandomBytes): Identity {
  const identity =
    options.credentials.kind === "static"
      ? fromCredential(options, options.credentials)
      : fromWord(options, options.credentials, random);
  return checked(identity, options);
}

/** The rules that hold for every identity; hands it back. */
export function checked(identity: Identity, options: Omit<IdentityOptions, "credentials">): Identity {
  if (options.principal !== undefined && options.principal !== identity.id) {
    throw refused(
      `the credential is ${identity.id}'s, and the options say ${options.principal}`,
      "leave the principal out, or use that principal's credential",
    );
  }
  checkName(identity.name);
  if (identity.role !== undefined) roleDurable(identity.role);
  return identity;
}

/** What a connection takes from an identity. */
export function dialedAs(
  identity: Identity,
): Pick<ConnectOptions, "inboxPrefix" | "name" | "authenticator" | "supply"> {
  const { inboxPrefix: prefix, id, connectionName, authenticator, supply } = identity;
  return {
    inboxPrefix: prefix,
    name: connectionName ?? id,
    ...(authenticator === undefined ? {} : { authenticator }),
    ...(supply === undefined ? {} : { supply }),
  };
}

function fromCredential(options: IdentityOptions, source: Extract<Credentials, { kind: "static" }>): Identity {
  const read = (): Credential => ("file" in source ? readCredsFile(source.file) : parseCreds(source.text));
  const { view } = read();
  if (options.space !== undefined && spaceToken(options.space) !== view.space) {
    throw refused(
      `the credential is for space ${view.space}, and the options say ${options.space}`,
      "leave the space out, or use a credential of that space",
    );
  }
  if (options.role !== undefined && options.role !== view.role) {
    throw refused(
      view.role === undefined ? "the credential holds no role" : `the credential holds the role ${view.role}`,
      "mint a credential with the role that you want to serve",
    );
  }
  return {
    mode: "auth",
    space: view.space,
    principal: view.principal,
    id: dotForm(view.principal),
    uid: view.uid,
    name: options.name ?? view.name ?? view.principal.actor,
    ...(view.role === undefined ? {} : { role: view.role }),
    inboxPrefix: inboxPrefix(view.uid, view.inboxNonce),
    authenticator: rereading(read, view.connId, dotForm(view.principal)),
    allowSubscribe: view.allowSubscribe,
    allowPublish: view.allowPublish,
  };
}

/** nats.js asks for the JWT and then for the signature of one dial: both come from one reading. */
function rereading(read: () => Credential, connId: string, id: string): Authenticator {
  let current: Credential | undefined;
  return {
    jwt: () => {
      current = read();
      const { view } = current;
      if (dotForm(view.principal) !== id || view.connId !== connId) {
        throw refused("the credential file now holds another identity", "start a new session with it");
      }
      return current.jwt;
    },
    sign: (nonce) => (current ?? read()).sign(nonce),
  };
}

function fromWord(
  options: IdentityOptions,
  word: Extract<Credentials, { kind: "open" }>,
  random: RandomBytes,
): Identity {
  const me = principal(OPEN_OWNER, word.actor);
  const uid = word.uid ?? drawLifecycleUid(random);
  if (!isLifecycleUid(uid)) throw badRequest("the uid is malformed", "keep the 26 characters that were drawn first");
  const space = spaceToken(options.space ?? "main");
  const authenticator = linkAuthenticator(word.secret);
  return {
    mode: "open",
    space,
    principal: me,
    id: dotForm(me),
    uid,
    name: options.name ?? word.actor,
    ...(options.role === undefined ? {} : { role: options.role }),
    inboxPrefix: inboxPrefix(uid, drawNonce(random)),
    ...(authenticator === undefined ? {} : { authenticator }),
  };
}

function linkAuthenticator(secret: LinkSecret | undefined): Authenticator | undefined {
  if (secret === undefined) return undefined;
  return secret.kind === "token" ? { token: () => secret.token } : { user: secret.user, pass: () => secret.pass };
}

export function refused(message: string, next: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, message, { outcome: Outcome.NotExecuted, next });
}
