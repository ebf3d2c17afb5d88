/**
 * A cluster of three brokers with a space that people sign in to, of three replicas. Its daemons, its operator and whoever
 * looks are at the first server, so that one of the others can go without taking any of them along.
 */
import { randomBytes } from "node:crypto";
import { type NatsConnection, connect } from "@nats-io/transport-node";
import { dialedAuth } from "../../shared/broker/authenticator.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { connId } from "../../shared/protocol/base/principals.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { type AuthService, startAuthService } from "./auth-service.ts";
import { startCluster } from "./broker-cluster.ts";
import { startDaemon } from "./cluster-world.ts";
import { auditIssues } from "./issued-audit.ts";
import type { TestBroker } from "./nats-server.ts";
import { lookInto } from "./store-looker.ts";

export type UserCluster = {
  /** The last is nobody's but that of whom `connectAt` puts there. */
  readonly brokers: readonly [TestBroker, TestBroker, TestBroker];
  readonly auth: AuthService;
  /** Another process of the auth service, which knows that server and no other. */
  readonly authAt: (server: number) => Promise<AuthService>;
  /** Another one, at a server of the cluster that has no JetStream. */
  readonly authBeside: () => Promise<AuthService>;
  readonly ledger: LedgerStore;
  /** Calls the auth service as the operator. */
  readonly say: (command: string, args: unknown) => Promise<unknown>;
  /** A connection as an agent makes it, on that server and no other; throws what that server answers. */
  readonly connectAt: (server: number, answer: ExchangeAnswer) => Promise<NatsConnection>;
  readonly stop: () => Promise<void>;
};

export async function startUserCluster(): Promise<UserCluster> {
  const cluster = await startCluster(3, "user");
  const [near, other, far] = cluster.brokers;
  if (near === undefined || other === undefined || far === undefined)
    throw new Error("a cluster of three was asked for");
  const daemons = (["provisioner", "delivery"] as const).map((name) => startDaemon(cluster, [near.url], name));
  const [provisioner] = daemons;
  const { state } = cluster;
  const made = () => provisioner?.ready ?? Promise.resolve();
  const audit = await auditIssues(state, near.url);
  const world = { state, url: near.url, spaces: ["main"], provisioner: { ready: made }, issued: audit.bearer };
  const auth = await startAuthService(world, { waitMs: 120_000 });
  const auths = [auth];
  await Promise.all(daemons.map(({ ready }) => ready));
  const authOf = async (url: string): Promise<AuthService> => {
    const another = await startAuthService({ ...world, url }, { waitMs: 120_000, name: `auth-${auths.length}` });
    auths.push(another);
    return another;
  };
  const opened: Connection[] = [];
  const members: NatsConnection[] = [];
  const operator = readCredsFile(trustPaths(state).operatorCreds("main"));
  const { principal, uid, inboxNonce } = operator.view;
  const asking = await openConnection({
    servers: [near.url],
    authenticator: { jwt: () => operator.jwt, sign: operator.sign },
    inboxPrefix: inboxPrefix(uid, inboxNonce),
    name: "operator",
    reconnect: { kind: "endless" },
  });
  const store = await lookInto(state, near.url);
  opened.push(asking, store);
  const call = createCaller({
    nc: asking.nc,
    space: "main",
    caller: { principal, uid },
    name: "operator",
    inboxPrefix: asking.inboxPrefix,
    denials: watchDenials(asking.nc),
    random: randomBytes,
  });
  return {
    brokers: [near, other, far],
    auth,
    authAt: (server) => authOf(cluster.brokers[server]?.url ?? ""),
    authBeside: async () => authOf((await cluster.diskless()).url),
    ledger: brokerLedgerStore(store.nc, createWriter({ nc: store.nc }), "main"),
    say: async (command, args) => (await call(EndpointName.Auth, command, args, { deadlineMs: 45_000 })).data,
    connectAt: async (server, { bearer, sentinel, lifecycleUid }) => {
      const nonce = "f".repeat(26);
      const nc = await connect({
        servers: cluster.brokers[server]?.url ?? "",
        name: connId(lifecycleUid, nonce),
        inboxPrefix: inboxPrefix(lifecycleUid, nonce),
        authenticator: dialedAuth({ jwt: () => sentinel, token: () => bearer }, "member").authenticate,
        reconnect: false,
        ignoreClusterUpdates: true,
        timeout: 5000,
      });
      members.push(nc);
      return nc;
    },
    stop: async () => {
      await Promise.all([...opened, ...members].map((connection) => connection.close()));
      await Promise.all(auths.map((one) => one.stop()));
      await audit.end();
      await Promise.all(daemons.map(({ end }) => end()));
      await cluster.stop();
    },
  };
}
