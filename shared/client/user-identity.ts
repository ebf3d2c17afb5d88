/**
 * Who a session is, for somebody who signs in and for an agent with a secret (§2, §10): the exchange says
 * it, and says it again with each bearer.
 *
 * Invariants
 * 1. Owner, actor and lifecycle come from the exchange; the client draws only the nonce of its inbox
 *    (decision H61). All of it is display and addressing: the minted grant is the boundary.
 * 2. One identity token is asked for at a time, however long its source takes.
 */
import { z } from "zod";
import { type Authenticator, type ConnectOptions, waitFor } from "../broker/connect.ts";
import { parseJson } from "../protocol/base/json.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type RandomBytes, connId, dotForm, drawNonce, principal } from "../protocol/base/principals.ts";
import { inboxPrefix } from "../protocol/base/broker-subjects.ts";
import { spaceToken } from "../protocol/base/subjects.ts";
import { type BearerSource, createBearerSource } from "./bearer-source.ts";
import type { AskedView, ExchangeProof } from "../protocol/endpoint/exchange-shapes.ts";
import { agentSecret } from "./agent-secret.ts";
import { type Exchanged, askExchange } from "./exchange.ts";
import {
  type AgentCredentials,
  type BearerCredentials,
  type Identity,
  type IdentityOptions,
  type UserCredentials,
  checked,
  refused,
  resolveIdentity,
} from "./identity.ts";

export type Waiting = Pick<ConnectOptions, "reconnect" | "signal" | "onStatus">;

/** Any identity; asks the exchange where it has to. Whoever gets one with a supply closes it. */
export async function openIdentity(options: IdentityOptions, random: RandomBytes, waiting: Waiting): Promise<Identity> {
  const { credentials } = options;
  if (credentials.kind === "static" || credentials.kind === "open") {
    return resolveIdentity({ ...options, credentials }, random);
  }
  const space = ownSpace(options, credentials);
  const { actor } = principal("local", credentials.actor);
  const source = createBearerSource({ fetch: fetcher({ ...credentials, actor }, space) });
  try {
    await waitFor(source, { ...waiting, name: actor });
    return checked(identityOf(source, space, drawNonce(random), options), options);
  } catch (thrown) {
    source.close();
    throw thrown;
  }
}

function ownSpace(options: IdentityOptions, credentials: Pick<UserCredentials, "space">): string {
  const space = spaceToken(credentials.space);
  if (options.space === undefined || spaceToken(options.space) === space) return space;
  throw refused(
    `the sign-in is for space ${space}, and the options say ${options.space}`,
    "leave the space out, or sign in to that space",
  );
}

function identityOf(source: BearerSource, space: string, nonce: string, options: IdentityOptions): Identity {
  const { owner, actor, lifecycleUid: uid, bearer } = source.current();
  const me = principal(owner, actor);
  return {
    mode: "auth",
    space,
    principal: me,
    id: dotForm(me),
    uid,
    name: options.name ?? actName(bearer) ?? actor,
    ...(options.role === undefined ? {} : { role: options.role }),
    inboxPrefix: inboxPrefix(uid, nonce),
    connectionName: connId(uid, nonce),
    authenticator: presenting(source),
    supply: source,
  };
}

/** Sentinel and bearer of one dial belong together: both come from one reading. */
function presenting(source: BearerSource): Authenticator {
  let dialed: Exchanged | undefined;
  return {
    jwt: () => {
      dialed = source.current();
      return dialed.sentinel;
    },
    token: () => (dialed ?? source.current()).bearer,
  };
}

const Named = z.object({ act: z.object({ name: z.string() }) });

/** The display name that the bearer says; read for display, believed by nobody. */
function actName(bearer: string): string | undefined {
  const claims = parseJson(Buffer.from(bearer.split(".")[1] ?? "", "base64url"));
  return Named.safeParse(claims).data?.act.name;
}

/** Asks for one bearer; at another address where the exchange was started again. */
function fetcher(
  credentials: UserCredentials | AgentCredentials | BearerCredentials,
  space: string,
): BearerCredentials["fetch"] {
  if (credentials.kind === "bearer") return credentials.fetch;
  const { exchange, actor } = credentials;
  const prove = proofOf(credentials);
  return async (signal) => {
    const request = await prove();
    const at = typeof exchange === "function" ? exchange() : exchange;
    return askExchange(at, { space, actor, ...request }, signal);
  };
}

/** The proof of each request, with the view that it is for. */
function proofOf(credentials: UserCredentials | AgentCredentials): () => Promise<ExchangeProof & AskedView> {
  if (credentials.kind === "agent") {
    const { owner, asks } = credentials;
    return async () => ({ owner, secret: agentSecret(credentials), ...asks });
  }
  let asking: Promise<string> | undefined;
  return async () => {
    asking ??= tokenOf(credentials).finally(() => {
      asking = undefined;
    });
    return { idToken: await asking, ...credentials.asks };
  };
}

/** Throws a `CotalError` that quotes nothing of what its source threw. */
export async function tokenOf({ idToken }: Pick<UserCredentials, "idToken">): Promise<string> {
  let token: string;
  try {
    token = await idToken();
  } catch (thrown) {
    if (thrown instanceof CotalError) throw thrown;
    // Without the cause: it may quote what it asked with.
    throw new CotalError(ErrorCode.Unavailable, "the identity token can't be had", {
      outcome: Outcome.NotExecuted,
      next: "sign in again (cotal login), or look at what the program's idToken does",
    });
  }
  if (typeof token === "string" && token !== "") return token;
  throw new CotalError(ErrorCode.Unauthenticated, "there is no identity token", {
    outcome: Outcome.NotExecuted,
    next: "sign in (cotal login)",
  });
}
