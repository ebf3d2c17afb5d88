/**
 * A broker with the product's own account claims for several spaces, each with its callout, and nothing
 * that answers: a test starts the responders it wants.
 */
import { join } from "node:path";
import { type NatsConnection, connect, jwtAuthenticator, tokenAuthenticator } from "@nats-io/transport-node";
import { operatorJwt, type SpaceKeys, spaceAccounts, systemJwt } from "../../shared/trust/accounts.ts";
import type { Responder } from "../../shared/trust/callout.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import { sentinelUser } from "../../shared/trust/sentinel.ts";
import { type CurveKey, newCurveKey } from "../../shared/trust/xkey.ts";
import { bareUserJwt, connectResponder, nowSeconds } from "./callout-responder.ts";
import { type TestBroker, startBroker } from "./nats-server.ts";

export type CalloutSpace = {
  readonly keys: SpaceKeys;
  readonly curve: CurveKey;
  readonly authSigner: SigningKey;
  /** Users that the auth account names. */
  readonly users: readonly SigningKey[];
  readonly sentinel: string;
  /** What signs and seals this space's answers. */
  readonly by: Responder;
  readonly front: { readonly account: string; readonly signer: SigningKey };
};

export type CalloutBroker = TestBroker & {
  readonly space: (name: string) => CalloutSpace;
  /** A client: sentinel and bearer together. Closed at `end`. */
  readonly client: (sentinel: string, token: string, options?: { readonly name?: string }) => Promise<NatsConnection>;
  /** A responder's connection: the n-th user that the auth account names. */
  readonly responder: (
    name: string,
    user?: number,
    grants?: Readonly<Record<string, unknown>>,
  ) => Promise<NatsConnection>;
  readonly system: () => Promise<NatsConnection>;
  /** Claims of a space's accounts, as they would be pushed with these users revoked. */
  readonly claims: (name: string, revoked: readonly string[]) => ReturnType<typeof spaceAccounts>;
  readonly end: () => Promise<void>;
};

export type CalloutBrokerOptions = {
  readonly spaces?: readonly string[];
  /** Spaces whose auth account has no callout. */
  readonly without?: readonly string[];
  readonly lines?: readonly string[];
};

export async function startCalloutBroker(options: CalloutBrokerOptions = {}): Promise<CalloutBroker> {
  const { spaces = ["main"], without = [], lines = [] } = options;
  const [operator, system, systemSigner] = [newKey("operator"), newKey("account"), newKey("account")];
  const made = new Map([...spaces, ...without].map((name) => [name, makeSpace()]));
  const space = (name: string): CalloutSpace => made.get(name) ?? missing(name);
  const claims: CalloutBroker["claims"] = (name, revoked) => {
    const { keys, curve, authSigner, users } = space(name);
    return spaceAccounts(operator, name, keys, {
      diskBytes: -1,
      connections: -1,
      system: system.publicKey,
      revoked,
      ...(without.includes(name)
        ? {}
        : {
            callout: {
              users: users.map(({ publicKey }) => publicKey),
              xkey: curve.publicKey,
              signers: [authSigner.publicKey],
            },
          }),
    });
  };
  const preload = [`${system.publicKey}: ${JSON.stringify(await systemJwt(operator, system, systemSigner))}`];
  for (const [name, { keys }] of made) {
    const jwts = await claims(name, []);
    preload.push(...(["front", "store", "auth"] as const).map((at) => `${keys[at].publicKey}: ${jwts[at]}`));
  }
  const trusted = await operatorJwt(operator, system.publicKey);
  const broker = await startBroker({
    config: (port, folder) =>
      [
        `listen: "127.0.0.1:${port}"`,
        "max_control_line: 65536",
        `jetstream { store_dir: ${JSON.stringify(join(folder, "store"))} }`,
        `operator: ${JSON.stringify(trusted)}`,
        `system_account: ${JSON.stringify(system.publicKey)}`,
        `resolver { type: full, dir: ${JSON.stringify(join(folder, "accounts"))}, interval: "2m", timeout: "1s" }`,
        `resolver_preload { ${preload.join("\n")} }`,
        ...lines,
      ].join("\n"),
  });
  const open: NatsConnection[] = [];
  const kept = (nc: NatsConnection): NatsConnection => {
    open.push(nc);
    return nc;
  };
  let systemConnection: NatsConnection | undefined;
  return {
    ...broker,
    space,
    claims,
    client: async (sentinel, token, { name } = {}) =>
      kept(
        await connect({
          servers: broker.url,
          timeout: 4000,
          reconnect: false,
          authenticator: [jwtAuthenticator(sentinel), tokenAuthenticator(token)],
          ...(name === undefined ? {} : { name }),
        }),
      ),
    responder: async (name, user = 0, grants) => {
      const { users, by } = space(name);
      return kept(await connectResponder(broker.url, users[user] ?? missing(`user ${user}`), by, grants));
    },
    system: async () => {
      const user = newKey("user");
      const jwt = bareUserJwt(user.publicKey, { account: system.publicKey, signer: systemSigner });
      const authenticator = jwtAuthenticator(jwt, Buffer.from(user.seedText()));
      return (systemConnection ??= kept(await connect({ servers: broker.url, authenticator, reconnect: false })));
    },
    end: async () => {
      await Promise.all(open.map((nc) => nc.close()));
      await broker.stop();
    },
  };
}

function makeSpace(): CalloutSpace {
  const keys: SpaceKeys = {
    front: newKey("account"),
    store: newKey("account"),
    auth: newKey("account"),
    frontSigner: newKey("account"),
    storeSigner: newKey("account"),
  };
  const [curve, authSigner] = [newCurveKey(), newKey("account")];
  const account = keys.auth.publicKey;
  return {
    keys,
    curve,
    authSigner,
    users: [newKey("user"), newKey("user")],
    sentinel: sentinelUser({
      account,
      signer: authSigner,
      userKey: newKey("user").publicKey,
      nowSeconds: nowSeconds(),
    }),
    by: { account, signer: authSigner, curves: [curve] },
    front: { account: keys.front.publicKey, signer: keys.frontSigner },
  };
}

function missing(what: string): never {
  throw new Error(`there is no ${what}`);
}
