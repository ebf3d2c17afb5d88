/**
 * A daemon's own credentials: minted by itself from its signing keys, kept in memory only.
 *
 * Invariants
 * 1. A user key lives as long as the process, or longer if it is given; its JWT is renewed under the
 *    same key, so one ledger row follows it.
 * 2. A renewed JWT is handed to the connection only after its ledger row says so (`renew`).
 * 3. However often a process opens a space, its users stay the same (`ownUsers`): an opening that is tried
 *    again for days fills no ledger.
 */
import type { Authenticator } from "./connect.ts";
import type { Account } from "../grants/row.ts";
import { type BuiltProfile, Life, type ScopeOf } from "../grants/matrix.ts";
import { inboxPrefix } from "../protocol/base/broker-subjects.ts";
import type { Caller } from "../protocol/endpoint/grammar.ts";
import { mintUser } from "../trust/jwt.ts";
import { type SigningKey, newKey } from "../trust/keys.ts";

export type OwnCredential = {
  readonly holder: Caller;
  readonly userKey: string;
  readonly inboxPrefix: string;
  readonly authenticator: Authenticator;
  /** Unix seconds. */
  readonly expires: () => number;
  /** Mints the next JWT; `enter` writes its row before the connection may use it. */
  readonly renew: (enter: (expires: number) => Promise<void>) => Promise<void>;
};

export type OwnCredentialOptions<Name extends BuiltProfile> = {
  readonly profile: Name;
  readonly scope: ScopeOf<Name>;
  readonly account: Account;
  readonly accountKey: string;
  readonly signer: SigningKey;
  readonly lifeSeconds?: number;
  /** A key that others know already; a fresh one is drawn otherwise. */
  readonly user?: SigningKey;
  readonly nowSeconds: () => number;
};

/** The users of a process in its spaces: each is drawn when it is first asked for. */
export type OwnUsers = {
  readonly of: (space: string, which: string) => SigningKey;
  /** Runs what enters them; a user whose row is refused is not presented again. */
  readonly entered: <T>(space: string, enter: () => Promise<T>) => Promise<T>;
};

export function ownUsers(): OwnUsers {
  const drawn = new Map<string, Map<string, SigningKey>>();
  return {
    of: (space, which) => {
      const users = drawn.get(space) ?? new Map<string, SigningKey>();
      drawn.set(space, users);
      const user = users.get(which) ?? newKey("user");
      users.set(which, user);
      return user;
    },
    entered: async (space, enter) => {
      try {
        return await enter();
      } catch (thrown) {
        drawn.delete(space);
        throw thrown;
      }
    },
  };
}

const UNLIMITED = { subs: -1, payload: -1 };

export async function ownCredential<Name extends BuiltProfile>(
  options: OwnCredentialOptions<Name>,
): Promise<OwnCredential> {
  const { user = newKey("user") } = options;
  const { scope, nowSeconds, lifeSeconds = Life.Host } = options;
  const mint = async (expires: number): Promise<string> => {
    const { profile, account, accountKey, signer } = options;
    const request = {
      profile,
      scope,
      account,
      accountKey,
      signer,
      userKey: user.publicKey,
      expires,
      limits: UNLIMITED,
    };
    return (await mintUser(request)).jwt;
  };
  let expires = nowSeconds() + lifeSeconds;
  let jwt = await mint(expires);
  return {
    holder: scope.holder,
    userKey: user.publicKey,
    inboxPrefix: inboxPrefix(scope.holder.uid, scope.inboxNonce),
    authenticator: { jwt: () => jwt, sign: user.sign },
    expires: () => expires,
    renew: async (enter) => {
      const next = nowSeconds() + lifeSeconds;
      const minted = await mint(next);
      await enter(next);
      expires = next;
      jwt = minted;
    },
  };
}
