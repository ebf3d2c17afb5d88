/**
 * The JWTs of a broker's operator and of a space's three accounts (decision H60).
 *
 * front: where every client connects, without JetStream. store: every stream and bucket; only
 * daemons connect. auth: for the callout, which may place connections in that front only.
 *
 * Invariants
 * 1. An export is private and answered once: an import needs an activation token signed by the
 *    store, made out to that one front. Another account that carries the same tokens is refused.
 * 2. The list of exports comes from `shared/grants/exports.ts` and nowhere else. The system account has one, to every
 *    account of this operator; what imports it is a store, and asking is granted there.
 * 3. The callout may place connections in that space's front and nowhere else, but for its own account:
 *    the broker always allows that one (measured).
 * 4. A revoked key is refused for ever, whenever its JWT was issued. The broker compares a time with
 *    the JWT's own, which another machine's clock has written; and no key is ever minted for again.
 */
import { type Account, type Export, type Import, encodeAccount, encodeActivation, encodeOperator } from "@nats-io/jwt";
import { SYSTEM_EXPORT, storeExports } from "../grants/exports.ts";
import { badRequest } from "../protocol/base/errors.ts";
import { ACCOUNT_NKEY, CURVE_NKEY, USER_NKEY } from "../protocol/base/grammar.ts";
import { type SigningKey, isPublicKey } from "./keys.ts";

export type SpaceKeys = {
  readonly front: SigningKey;
  readonly store: SigningKey;
  readonly auth: SigningKey;
  readonly frontSigner: SigningKey;
  readonly storeSigner: SigningKey;
};

export type SpaceAccountOptions = {
  /** Store limits in bytes; -1 for the server's own. */
  readonly diskBytes: number;
  readonly connections: number;
  /** Identity key of the broker's system account. */
  readonly system: string;
  /** User nkeys that may no longer connect, with any JWT. */
  readonly revoked: readonly string[];
  /** Absent where nobody signs in through the callout. */
  readonly callout?: CalloutAccount;
  /** Public signing keys beside the provisioner's: the auth service has its own. */
  readonly moreSigners?: { readonly front: readonly string[]; readonly store: readonly string[] };
};

/** Who answers for the auth account (nats-server: `authorization`). Public keys only. */
export type CalloutAccount = {
  /** The users that serve requests. Everybody else who names the auth account is asked about. */
  readonly users: readonly string[];
  /** Requests are sealed for this curve key. */
  readonly xkey: string;
  /** Signing keys of the auth account: for responses, its users, the sentinel. None: its own key. */
  readonly signers?: readonly string[];
};

export type SpaceAccounts = { readonly front: string; readonly store: string; readonly auth: string };

const UNLIMITED = {
  subs: -1,
  data: -1,
  payload: -1,
  imports: -1,
  exports: -1,
  wildcards: true,
  leaf: 0,
} as const;

/** A time, in unix seconds, that no JWT is issued after (the year 9999). */
const FOR_EVER = 253_402_300_799;

const NO_JETSTREAM = { mem_storage: 0, disk_storage: 0, streams: 0, consumer: 0 } as const;

/** The operator's JWT; it names the system account. */
export function operatorJwt(operator: SigningKey, system: string): Promise<string> {
  return encodeOperator("cotal", operator.pair, { system_account: system });
}

/** The system account's JWT. */
export function systemJwt(operator: SigningKey, system: SigningKey, signer: SigningKey): Promise<string> {
  return encodeAccount(
    "SYS",
    system.pair,
    {
      limits: { ...UNLIMITED, conn: -1, ...NO_JETSTREAM },
      exports: [{ ...SYSTEM_EXPORT, type: "service", response_type: "Stream" }],
      signing_keys: [signer.publicKey],
    },
    { signer: operator.pair },
  );
}

/** The three account JWTs of a space. */
export async function spaceAccounts(
  operator: SigningKey,
  space: string,
  keys: SpaceKeys,
  options: SpaceAccountOptions,
): Promise<SpaceAccounts> {
  const rows = storeExports(space);
  const exports: Export[] = rows.map((row) => ({
    name: row.name,
    subject: row.subject,
    type: "service",
    token_req: true,
    response_type: "Singleton",
  }));
  const imports: Import[] = await Promise.all(
    rows.map(async (row) => ({
      name: row.name,
      subject: row.subject,
      local_subject: row.subject,
      type: "service" as const,
      account: keys.store.publicKey,
      token: await encodeActivation(
        row.name,
        keys.front.publicKey,
        keys.store.publicKey,
        "service",
        { subject: row.subject },
        {
          signer: keys.storeSigner.pair,
        },
      ),
    })),
  );
  const base = { ...UNLIMITED, conn: -1 };
  const signed = { signer: operator.pair };
  const revocations = { revocations: Object.fromEntries(options.revoked.map((user) => [user, FOR_EVER])) };
  const [front, store, auth] = await Promise.all([
    encodeAccount(
      `${space}.front`,
      keys.front.pair,
      {
        limits: { ...base, conn: options.connections, ...NO_JETSTREAM },
        imports,
        signing_keys: [keys.frontSigner.publicKey, ...(options.moreSigners?.front ?? [])],
        ...revocations,
      },
      signed,
    ),
    encodeAccount(
      `${space}.store`,
      keys.store.pair,
      {
        limits: { ...base, mem_storage: 0, disk_storage: options.diskBytes, streams: -1, consumer: -1 },
        exports,
        imports: [
          {
            ...SYSTEM_EXPORT,
            local_subject: SYSTEM_EXPORT.subject,
            type: "service",
            account: options.system,
          },
        ],
        signing_keys: [keys.storeSigner.publicKey, ...(options.moreSigners?.store ?? [])],
        ...revocations,
      },
      signed,
    ),
    encodeAccount(
      `${space}.auth`,
      keys.auth.pair,
      { limits: { ...base, ...NO_JETSTREAM }, ...calloutClaims(options.callout, keys.front.publicKey) },
      signed,
    ),
  ]);
  return { front, store, auth };
}

function calloutClaims(callout: CalloutAccount | undefined, front: string): Partial<Account> {
  if (callout === undefined) return {};
  const { users, xkey, signers = [] } = callout;
  const wrong =
    users.length === 0 ||
    !users.every((user) => isPublicKey(USER_NKEY, user)) ||
    !signers.every((signer) => isPublicKey(ACCOUNT_NKEY, signer)) ||
    !isPublicKey(CURVE_NKEY, xkey);
  // Without a user the broker asks nobody and lets every sentinel in; without a curve key it asks in the clear.
  if (wrong) throw badRequest("a callout needs public keys: of one user or more, of a curve, of each signer");
  return {
    authorization: { auth_users: [...users], allowed_accounts: [front], xkey },
    ...(signers.length === 0 ? {} : { signing_keys: [...signers] }),
  };
}
