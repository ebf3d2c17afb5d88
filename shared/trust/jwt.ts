/**
 * User JWTs: minting from the matrix, and reading what a credential says about its holder.
 *
 * Invariants
 * 1. Nothing is minted but a built profile's rows, gated by size (`shared/grants/`).
 * 2. The JWT's `name` is the holder's principal: it is what the broker's connection view shows.
 * 3. Limits stand in every JWT (decision H67); no credential lives for ever.
 * 4. Signed natively and without waiting: the callout mints one for each connection.
 */
import { decode } from "@nats-io/jwt";
import { z } from "zod";
import type { Account } from "../grants/row.ts";
import { type BuiltProfile, PROFILES, type ScopeOf, isBuilt, profileRows } from "../grants/matrix.ts";
import { checkJwtSize } from "../grants/gates.ts";
import { type Permissions, permissionsOf } from "../grants/permissions.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { USER_NKEY } from "../protocol/base/grammar.ts";
import { type Principal, connId, dotForm, parseDotForm } from "../protocol/base/principals.ts";
import { isChannelPattern } from "../protocol/base/channels.ts";
import { isCapability } from "../protocol/endpoint/capabilities.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import type { ConnectionLimits } from "../protocol/chat/space-settings.ts";
import { type SigningKey, isPublicKey } from "./keys.ts";
import { signedJwt } from "./nats-jwt.ts";

export type MintRequest<Name extends BuiltProfile> = {
  readonly profile: Name;
  readonly scope: ScopeOf<Name>;
  readonly account: Account;
  /** Identity key of the account the user belongs to. */
  readonly accountKey: string;
  /** A signing key of that account. */
  readonly signer: SigningKey;
  /** Public nkey of the user; its seed never leaves the holder. */
  readonly userKey: string;
  /** Unix seconds. */
  readonly expires: number;
  /** Unix seconds; now, if not given. */
  readonly issued?: number;
  readonly limits: ConnectionLimits;
  /** Display name, shown in presence. */
  readonly name?: string;
  /** What its commands came from, for a credential that is renewed by what it says of itself. */
  readonly capabilities?: readonly string[];
};

export type Minted = { readonly jwt: string; readonly permissions: Permissions };

/** Mints one user JWT. Throws `resource-exhausted` if it breaks a size gate. */
export async function mintUser<Name extends BuiltProfile>(request: MintRequest<Name>): Promise<Minted> {
  const name: string = request.profile;
  if (!isBuilt(name)) {
    throw new CotalError(ErrorCode.Unimplemented, `no credential can be minted as ${name}`, {
      outcome: Outcome.NotExecuted,
      next: "docs/security/profiles.md lists the profiles there are",
    });
  }
  const profile = PROFILES[request.profile];
  if (!(profile.accounts as readonly Account[]).includes(request.account)) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${request.profile} has no rows in ${request.account}`, {
      outcome: Outcome.NotExecuted,
    });
  }
  if (!isPublicKey(USER_NKEY, request.userKey)) throw badRequest("a user JWT is made out to a public user key");
  const permissions = permissionsOf(profileRows(request.profile, request.scope), request.account);
  const { holder, inboxNonce, space } = request.scope;
  const tags = [
    `profile:${request.profile}`,
    `space:${space}`,
    `uid:${holder.uid}`,
    `inbox:${inboxNonce}`,
    ...("role" in request.scope && request.scope.role !== undefined ? [`role:${request.scope.role}`] : []),
    ...(request.name === undefined ? [] : [`name:${Buffer.from(request.name).toString("hex")}`]),
    ...(request.capabilities ?? []).map((capability) => `may:${capability}`),
  ];
  const jwt = signedJwt(
    {
      sub: request.userKey,
      // The stock library's own; a broker with accounts does not look at it.
      aud: "NATS",
      name: dotForm(holder.principal),
      iat: request.issued ?? Math.floor(Date.now() / 1000),
      exp: request.expires,
      nats: {
        ...granted(permissions, profile),
        subs: request.limits.subs,
        payload: request.limits.payload,
        data: -1,
        bearer_token: false,
        issuer_account: request.accountKey,
        tags,
        type: "user",
      },
    },
    request.signer,
  );
  const { scope } = request;
  checkJwtSize(jwt, permissions, [
    ...("allowSubscribe" in scope ? scope.allowSubscribe : []),
    ...("allowPublish" in scope ? scope.allowPublish : []),
    ...("allowPublish" in scope ? scope.commands.map(({ endpoint, command }) => `${endpoint} ${command}`) : []),
  ]);
  return { jwt, permissions };
}

/**
 * A profile that answers, and publishes nothing else, has no publish side: what the broker allows it is
 * its answers, and the deny of everything beside it would refuse those too (measured).
 */
function granted(permissions: Permissions, profile: { readonly answersWithinSeconds?: number }): object {
  const { answersWithinSeconds: seconds } = profile;
  if (seconds === undefined) return permissions;
  const { pub, sub } = permissions;
  return { ...(pub.allow.length === 0 ? {} : { pub }), sub, resp: { max: 1, ttl: seconds * 1_000_000_000 } };
}

/** What a credential says about its holder. Display and addressing; the broker is the boundary. */
export type CredentialView = {
  readonly principal: Principal;
  readonly uid: string;
  readonly inboxNonce: string;
  readonly connId: string;
  readonly space: string;
  readonly profile: string;
  readonly userKey: string;
  readonly role?: string;
  readonly name?: string;
  readonly allowSubscribe: readonly string[];
  readonly allowPublish: readonly string[];
  /** Of a static credential: those that it was minted with. */
  readonly capabilities: readonly string[];
  /** Unix seconds; `undefined` if it does not expire. */
  readonly expires?: number;
};

const Claims = z.looseObject({
  sub: z.string(),
  name: z.string(),
  exp: z.number().optional(),
  nats: z.looseObject({
    tags: z.array(z.string()).optional(),
    pub: z.looseObject({ allow: z.array(z.string()).optional() }).optional(),
    sub: z.looseObject({ allow: z.array(z.string()).optional() }).optional(),
  }),
});

/** Reads a user JWT of ours; throws `unauthenticated` for any other. */
export function readUserJwt(jwt: string): CredentialView {
  let claims: z.infer<typeof Claims>;
  try {
    claims = Claims.parse(decode(jwt));
  } catch (cause) {
    throw notOurs("its JWT does not parse", cause);
  }
  const tags = claims.nats.tags ?? [];
  const tagged = (name: string) =>
    tags.flatMap((tag) => (tag.startsWith(`${name}:`) ? [tag.slice(name.length + 1)] : []));
  const tag = (name: string) => tagged(name)[0];
  const principal = parseDotForm(claims.name);
  const uid = tag("uid");
  const inboxNonce = tag("inbox");
  const space = tag("space");
  const profile = tag("profile");
  if (!principal || !uid || !inboxNonce || !space || !profile) throw notOurs("it names no principal of a space");
  const role = tag("role");
  const name = tag("name");
  const subjects = spaceSubjects(space);
  return {
    principal,
    uid,
    inboxNonce,
    connId: connId(uid, inboxNonce),
    space,
    profile,
    userKey: claims.sub,
    ...(role === undefined ? {} : { role }),
    ...(name === undefined ? {} : { name: Buffer.from(name, "hex").toString() }),
    allowSubscribe:
      claims.nats.sub?.allow?.includes(subjects.chatAll) === true
        ? [">"]
        : channelsUnder(claims.nats.sub?.allow, subjects.chatRead(">")),
    allowPublish: channelsUnder(claims.nats.pub?.allow, subjects.chatGrant(principal, ">")),
    capabilities: tagged("may").filter(isCapability),
    ...(claims.exp === undefined ? {} : { expires: claims.exp }),
  };
}

/** The channels of the grants under one chat lead: the permissions are the lists. */
function channelsUnder(entries: readonly string[] | undefined, lead: string): string[] {
  const prefix = lead.slice(0, -1);
  return (entries ?? [])
    .filter((entry) => entry.startsWith(prefix))
    .map((entry) => entry.slice(prefix.length))
    .filter(isChannelPattern);
}

function notOurs(why: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.Unauthenticated, `this is not a credential of a space: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "ask the operator of the space for a credential (cotal mint)",
    ...(cause === undefined ? {} : { cause }),
  });
}
