/**
 * The compose project as a user brings it up, under a name of its own: run, scaled, killed, read, removed.
 *
 * It is `docker compose` itself that is run, as a child process: what is tested is what a user types, and a
 * library around it would add nothing but its own packages.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Item, type Running, cli, startCli } from "./cli.ts";
import { freePort } from "./nats-server.ts";
import { keepState, printed } from "./printed.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const run = promisify(execFile);

export type Container = {
  readonly Name: string;
  readonly RestartCount: number;
  readonly State: { readonly Status: string; readonly ExitCode: number; readonly OOMKilled: boolean };
  readonly Config: { readonly User: string; readonly Labels: Readonly<Record<string, string>> };
  readonly HostConfig: {
    readonly ReadonlyRootfs: boolean;
    readonly CapDrop: readonly string[] | null;
    readonly CapAdd: readonly string[] | null;
    readonly Memory: number;
    readonly NanoCpus: number;
    readonly SecurityOpt: readonly string[] | null;
    readonly Init: boolean | null;
  };
  readonly Mounts: readonly { readonly Name?: string; readonly Destination: string; readonly RW: boolean }[];
};

export type Compose = {
  readonly name: string;
  readonly server: string;
  readonly prometheus: string;
  /** Runs `docker compose` with these arguments on the project; throws with its output. */
  readonly compose: (...args: readonly string[]) => Promise<string>;
  readonly containers: () => Promise<readonly Container[]>;
  /** Of one service, in the order of their numbers. */
  readonly of: (service: string) => Promise<readonly Container[]>;
  readonly logs: () => Promise<string>;
  /** The address from which this machine comes to the containers. */
  readonly gateway: () => Promise<string>;
  /** Kills the main process of a container, as a crash would. */
  readonly crash: (container: Container) => Promise<void>;
  /** The state folder on this machine, from which `cotal` acts in the space. */
  readonly state: string;
  /** Makes it anew, over the exchange of that edge; of the first one if none is named. */
  readonly desk: (edge?: Container) => Promise<string>;
  readonly json: (...args: readonly string[]) => Promise<Item[]>;
  readonly start: (...args: readonly string[]) => Running;
  readonly down: () => Promise<void>;
};

export async function composeProject(): Promise<Compose> {
  const name = `cotal-test-${process.pid}`;
  const [port, prometheusPort] = [await freePort(), await freePort()];
  const env = {
    ...process.env,
    COMPOSE_PROJECT_NAME: name,
    COTAL_IMAGE: "cotal:test",
    COTAL_BROKER_PUBLISH: `127.0.0.1:${port}`,
    COTAL_PROMETHEUS_PUBLISH: `127.0.0.1:${prometheusPort}`,
    // Any free port for each instance.
    COTAL_FACE_PORTS: "0",
    COTAL_EXCHANGE_PUBLISH: "127.0.0.1:0",
  };
  const options = { cwd: ROOT, env, maxBuffer: 64 * 1024 * 1024 };
  const compose: Compose["compose"] = async (...args) => {
    try {
      return (await run("docker", ["compose", ...args], options)).stdout;
    } catch (thrown) {
      const { stderr = "", stdout = "" } = thrown as { stderr?: string; stdout?: string };
      throw new Error(`docker compose ${args.join(" ")}: ${stdout}\n${stderr}`);
    }
  };
  const containers: Compose["containers"] = async () => {
    const ids = (await compose("ps", "--all", "--quiet")).split("\n").filter((id) => id !== "");
    if (ids.length === 0) return [];
    const { stdout } = await run("docker", ["inspect", ...ids], options);
    return JSON.parse(stdout) as Container[];
  };
  const state = mkdtempSync(join(tmpdir(), "cotal-desk-"));
  const server = `nats://127.0.0.1:${port}`;
  const host = { COTAL_STATE: state, COTAL_SERVER: server };
  const logs = (): Promise<string> => compose("logs", "--no-color", "--no-log-prefix");
  return {
    name,
    server,
    prometheus: `http://127.0.0.1:${prometheusPort}`,
    compose,
    containers,
    of: async (service) => {
      const number = ({ Config }: Container) => Number(Config.Labels["com.docker.compose.container-number"]);
      return (await containers())
        .filter(({ Config }) => Config.Labels["com.docker.compose.service"] === service)
        .toSorted((a, b) => number(a) - number(b));
    },
    logs,
    gateway: async () => {
      const { stdout } = await run("docker", ["network", "inspect", `${name}_outside`], options);
      const [network] = JSON.parse(stdout) as { readonly IPAM: { readonly Config: readonly { Gateway: string }[] } }[];
      return network?.IPAM.Config[0]?.Gateway ?? "";
    },
    crash: async ({ Name }) => {
      // `docker kill` would be taken for a wish: the restart policy sees to a process that dies.
      const kill =
        'for p in /proc/[0-9]*; do case "$(readlink "$p/exe")" in */node) kill -9 "${p#/proc/}";; esac; done';
      await run("docker", ["exec", Name.slice(1), "sh", "-c", kill], options).catch(() => undefined);
    },
    state,
    desk: async (edge) => {
      const index = edge?.Config.Labels["com.docker.compose.container-number"] ?? "1";
      await run(join(ROOT, "deploy", "desk"), [state, index], options);
      return state;
    },
    json: async (...args) => {
      const ran = await cli([...args, "--json"], { env: host });
      if (ran.code !== 0) throw new Error(`${args.join(" ")} ended with ${ran.code}: ${ran.out} ${ran.err}`);
      return ran.items();
    },
    start: (...args) => startCli(args, { env: host }),
    down: async () => {
      keepState(state);
      printed("containers", await logs().catch(() => ""));
      await compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "15");
      rmSync(state, { recursive: true, force: true });
    },
  };
}
