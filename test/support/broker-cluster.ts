/** A cluster of real brokers under one operator, with this project's own trust for one space. */
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type TestBroker, freePort, startBroker } from "./nats-server.ts";
import { SYNC_INTERVAL } from "../../services/trust/server-config.ts";
import { keepState } from "./printed.ts";

const TRUST = join(import.meta.dirname, "..", "..", "services", "trust", "main.ts");
const run = promisify(execFile);

export type TestCluster = {
  readonly state: string;
  readonly brokers: readonly TestBroker[];
  /** Starts one more, which has no JetStream. */
  readonly diskless: () => Promise<TestBroker>;
  /** Runs the trust program; what it printed, or an error that says it. */
  readonly trust: (command: string, ...args: readonly string[]) => Promise<string>;
  readonly stop: () => Promise<void>;
};

/** Starts it and makes the space `main`. Its JetStream group forms a little later. */
export async function startCluster(size: number, auth: "static" | "user" = "static"): Promise<TestCluster> {
  const state = mkdtempSync(join(tmpdir(), "cotal-cluster-"));
  const trust = async (command: string, ...args: readonly string[]): Promise<string> => {
    const ended = run(process.execPath, [TRUST, command, "--state", state, ...args]);
    const { stdout } = await ended.catch((failed: { stdout?: string }) => {
      throw new Error(`trust ${command}: ${failed.stdout ?? "it did not start"}`);
    });
    return stdout;
  };
  const routes = await Promise.all(Array.from({ length: size }, () => freePort()));
  await trust("init", "--host", "127.0.0.1", "--port", "4222");
  const base = readFileSync(join(state, "broker", "nats-server.conf"), "utf8");
  const start = (name: string, route: number, jetstream: boolean): Promise<TestBroker> =>
    startBroker({
      configFile: (port) => {
        const file = join(state, `${name}.conf`);
        writeFileSync(file, configOf(base, { port, route, routes, name, folder: join(state, name), jetstream }));
        return Promise.resolve(file);
      },
    });
  const brokers = await Promise.all(routes.map((route, at) => start(`n${at}`, route, true)));
  const more: TestBroker[] = [];
  await trust("space", "--space", "main", "--server", brokers[0]?.url ?? "", "--auth", auth);
  return {
    state,
    brokers,
    diskless: async () => {
      const one = await start(`d${more.length}`, await freePort(), false);
      more.push(one);
      return one;
    },
    trust,
    stop: async () => {
      await Promise.all([...brokers, ...more].map((broker) => broker.stop()));
      keepState(state);
      rmSync(state, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

type Place = {
  readonly port: number;
  readonly route: number;
  readonly routes: readonly number[];
  readonly name: string;
  readonly folder: string;
  readonly jetstream: boolean;
};

function configOf(base: string, { port, route, routes, name, folder, jetstream }: Place): string {
  const own = (what: string): string => JSON.stringify(join(folder, what));
  const text = base
    .replace(/^listen: .*$/m, `listen: "127.0.0.1:${port}"`)
    .replace(/^pid_file: .*$/m, "")
    .replace(/^jetstream .*$/m, jetstream ? `jetstream { store_dir: ${own("store")}, ${SYNC_INTERVAL} }` : "")
    .replace(/^ {2}dir: .*$/m, `  dir: ${own("accounts")}`);
  const peers = routes.map((one) => JSON.stringify(`nats://127.0.0.1:${one}`)).join(", ");
  return `${text}\nserver_name: ${name}\ncluster { name: c, listen: "127.0.0.1:${route}", routes: [${peers}] }\n`;
}
