/**
 * A broker in operator mode with bare accounts, made with the JWT library for the test of one broker
 * fact; no part of the product's trust is used.
 */
import { join } from "node:path";
import { connect, type ConnectionOptions, jwtAuthenticator, type NatsConnection } from "@nats-io/transport-node";
import {
  type Account,
  type Export,
  type Import,
  type User,
  createAccount,
  createOperator,
  createUser,
  encodeAccount,
  encodeActivation,
  encodeOperator,
  encodeUser,
  type KeyPair,
} from "@nats-io/jwt";
import { type TestBroker, startBroker } from "./nats-server.ts";

export const NO_LIMITS = {
  subs: -1,
  data: -1,
  payload: -1,
  imports: -1,
  exports: -1,
  wildcards: true,
  conn: -1,
  leaf: -1,
} as const;
export const WITH_JETSTREAM = { ...NO_LIMITS, mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 } as const;

export type BareUser = { readonly key: KeyPair; readonly publicKey: string; readonly jwt: string };

export type BareOperator = TestBroker & {
  readonly operator: KeyPair;
  readonly accounts: ReadonlyMap<string, KeyPair>;
  readonly user: (account: string, grants?: Partial<User>, expires?: number) => Promise<BareUser>;
  readonly login: (user: BareUser | (() => BareUser), options?: ConnectionOptions) => Promise<NatsConnection>;
  /** A system-account connection. */
  readonly system: () => Promise<NatsConnection>;
  /** Pushes an account's claims, as an operator's tool does; the answer's code. */
  readonly push: (account: string, claims: Partial<Account>, signer?: KeyPair) => Promise<number>;
  readonly end: () => Promise<void>;
};

/** Starts a broker whose resolver knows these accounts. */
export async function startBareOperator(
  claims: (keys: ReadonlyMap<string, KeyPair>) => Promise<Readonly<Record<string, Partial<Account>>>>,
  names: readonly string[],
  extra: readonly string[] = [],
): Promise<BareOperator> {
  const operator = createOperator();
  const accounts = new Map(["SYS", ...names].map((name) => [name, createAccount()]));
  const key = (name: string): KeyPair => accounts.get(name) ?? missing(name);
  const wanted = { SYS: { limits: NO_LIMITS }, ...(await claims(accounts)) };
  const preload = await Promise.all(
    Object.entries(wanted).map(async ([name, claim]) => {
      const jwt = await encodeAccount(name, key(name), claim, { signer: operator });
      return `${key(name).getPublicKey()}: ${JSON.stringify(jwt)}`;
    }),
  );
  const operatorJwt = await encodeOperator("bare", operator, { system_account: key("SYS").getPublicKey() });
  const broker = await startBroker({
    config: (port, folder) =>
      [
        `listen: "127.0.0.1:${port}"`,
        "max_control_line: 65536",
        `jetstream { store_dir: ${JSON.stringify(join(folder, "store"))} }`,
        `operator: ${JSON.stringify(operatorJwt)}`,
        `system_account: ${JSON.stringify(key("SYS").getPublicKey())}`,
        `resolver { type: full, dir: ${JSON.stringify(join(folder, "accounts"))}, allow_delete: false, interval: "2m", timeout: "1s" }`,
        `resolver_preload { ${preload.join("\n")} }`,
        ...extra,
      ].join("\n"),
  });
  const open: NatsConnection[] = [];
  const login: BareOperator["login"] = async (user, options = {}) => {
    const of = (): BareUser => (typeof user === "function" ? user() : user);
    const nc = await connect({
      servers: broker.url,
      timeout: 3000,
      reconnect: false,
      authenticator: (nonce) => jwtAuthenticator(of().jwt, of().key.getSeed())(nonce),
      ...options,
    });
    open.push(nc);
    return nc;
  };
  const user: BareOperator["user"] = async (account, grants = {}, expires) => {
    const own = createUser();
    const jwt = await encodeUser("user", own, key(account), grants, expires === undefined ? {} : { exp: expires });
    return { key: own, publicKey: own.getPublicKey(), jwt };
  };
  let systemConnection: NatsConnection | undefined;
  const system = async (): Promise<NatsConnection> => (systemConnection ??= await login(await user("SYS")));
  return {
    ...broker,
    operator,
    accounts,
    user,
    login,
    system,
    push: async (account, claim, signer = operator) => {
      const jwt = await encodeAccount(account, key(account), claim, { signer });
      const answer = await (await system()).request("$SYS.REQ.CLAIMS.UPDATE", jwt, { timeout: 5000 });
      const { data, error } = answer.json<{ data?: { code?: number }; error?: { code?: number } }>();
      return data?.code ?? error?.code ?? 0;
    },
    end: async () => {
      await Promise.all(open.map((nc) => nc.close()));
      await broker.stop();
    },
  };
}

/** Private service exports of one account to another, each import with its activation token. */
export async function privateServices(
  from: KeyPair,
  to: KeyPair,
  subjects: readonly string[],
  responseType: "Singleton" | "Stream" = "Singleton",
): Promise<{ readonly exports: Export[]; readonly imports: Import[] }> {
  const exports = subjects.map((subject): Export => ({
    name: subject,
    subject,
    type: "service",
    token_req: true,
    response_type: responseType,
  }));
  const imports = await Promise.all(
    subjects.map(async (subject): Promise<Import> => {
      const token = await encodeActivation(subject, to.getPublicKey(), from, "service", { subject });
      return { name: subject, subject, local_subject: subject, type: "service", account: from.getPublicKey(), token };
    }),
  );
  return { exports, imports };
}

function missing(name: string): never {
  throw new Error(`there is no account ${name}`);
}
