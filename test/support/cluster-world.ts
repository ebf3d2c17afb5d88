/** A cluster of three brokers with a space of three replicas, its daemons, and sessions that know all three servers. */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Session, connect } from "../../shared/client/index.ts";
import { type TestCluster, startCluster } from "./broker-cluster.ts";
import { cli } from "./cli.ts";
import { printed } from "./printed.ts";

const ROOT = join(import.meta.dirname, "..", "..");

export type ClusterWorld = {
  readonly cluster: TestCluster;
  readonly servers: readonly string[];
  /** A session with a credential that is minted for it. */
  readonly session: (actor: string) => Promise<Session>;
  readonly stop: () => Promise<void>;
};

export async function startClusterWorld(): Promise<ClusterWorld> {
  const cluster = await startCluster(3);
  const servers = cluster.brokers.map(({ url }) => url);
  const daemons = (["provisioner", "delivery"] as const).map((name) => startDaemon(cluster, servers, name));
  await Promise.all(daemons.map(({ ready }) => ready));
  const where = ["--state", cluster.state, "--server", servers[0] ?? ""];
  // Of a sender and of a member the last thousand are kept otherwise: here all are counted.
  for (const store of ["chat", "delivery"]) {
    const set = await cli(["limits", "set", store, "--count", "none", ...where]);
    if (set.code !== 0) throw new Error(`limits: ${set.out} ${set.err}`);
  }
  const sessions: Session[] = [];
  return {
    cluster,
    servers,
    session: async (actor) => {
      const file = join(cluster.state, `${actor}.creds`);
      const lists = ["--owner", "acme", "--actor", actor, "--subscribe", ">", "--out", file];
      const minted = await cli(["mint", ...where, ...lists]);
      if (minted.code !== 0) throw new Error(`mint: ${minted.out} ${minted.err}`);
      const credentials = { kind: "static", text: readFileSync(file, "utf8") } as const;
      const reconnect = { kind: "endless", baseMs: 50, capMs: 500 } as const;
      const session = await connect({ servers: [...servers], credentials, reconnect });
      sessions.push(session);
      return session;
    },
    stop: async () => {
      await Promise.all(sessions.map((session) => session.close()));
      await Promise.all(daemons.map(({ end }) => end()));
      await cluster.stop();
    },
  };
}

/** A daemon of three replicas that knows all three servers. */
export function startDaemon({ state }: TestCluster, servers: readonly string[], name: "provisioner" | "delivery") {
  const child: ChildProcess = spawn(process.execPath, [join(ROOT, "services", name, "main.ts")], {
    env: {
      ...process.env,
      COTAL_SERVERS: servers.join(","),
      COTAL_SPACES: "*",
      COTAL_REPLICAS: "3",
      COTAL_BROKER: "accounts",
      COTAL_PROVISIONER_KEYS: join(state, "spaces", "{space}", "provisioner"),
      COTAL_DELIVERY_KEYS: join(state, "spaces", "{space}", "delivery"),
      COTAL_PARENT_IPC: "true",
    },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => printed(name, chunk.toString()));
  }
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const ready = new Promise<void>((resolve, reject) => {
    child.on("message", (message: { kind?: string }) => {
      if (message.kind === "ready") resolve();
    });
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
  });
  ready.catch(() => undefined);
  return {
    ready,
    end: async () => {
      child.kill("SIGTERM");
      await ended;
    },
  };
}
