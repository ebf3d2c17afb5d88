/**
 * The compose project as a user brings it up, under a name of its own: run, scaled, killed, read, removed.
 *
 * It is `docker compose` itself that is run, as a child process: what is tested is what a user types, and a
 * library around it would add nothing but its own packages.
 */
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Item, type Running, cli, startCli } from "./cli.ts";
import { freePort } from "./nats-server.ts";
import { keepState, printed } from "./printed.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const run = promisify(execFile);

/** What a log says of an error: the daemons, the broker, Prometheus. */
const ERROR = /"level":"(?:error|fatal)"|\[(?:ERR|FTL)\]|level=(?:ERROR|error)/;
/** Who dials from outside while the broker comes back before the edges is refused, and dials again; or a test wants it so. */
const REFUSALS = [
  "authentication error",
  "maximum account active connections exceeded",
  ": connection closed",
] as const;

export type Container = {
  readonly Id: string;
  readonly Name: string;
  readonly Image: string;
  readonly RestartCount: number;
  readonly State: {
    readonly Status: string;
    readonly ExitCode: number;
    readonly OOMKilled: boolean;
    readonly StartedAt: string;
  };
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

export type ComposeOptions = {
  /** The checkout whose files are meant; this one if none is named. */
  readonly root?: string;
  /** Settings of its own, as `.env` would have them. */
  readonly settings?: Readonly<Record<string, string>>;
};

export type Compose = {
  readonly name: string;
  readonly server: string;
  readonly prometheus: string;
  /** Runs `docker compose` with these arguments on the project; throws with its output. */
  readonly compose: (...args: readonly string[]) => Promise<string>;
  /** Runs commands of a shell in the checkout, the first that fails being the last; throws unless they end so. */
  readonly shell: (commands: string, ends?: number) => Promise<string>;
  readonly containers: () => Promise<readonly Container[]>;
  /** Of one service, in the order of their numbers. */
  readonly of: (service: string) => Promise<readonly Container[]>;
  readonly logs: () => Promise<string>;
  /** Lines of the logs that say of an error, but for those of who was refused from outside and dials again. */
  readonly errors: () => Promise<readonly string[]>;
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

export async function composeProject({ root = ROOT, settings = {} }: ComposeOptions = {}): Promise<Compose> {
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
    ...settings,
  };
  const options = { cwd: root, env, maxBuffer: 64 * 1024 * 1024 };
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
  // Where `deploy/desk` makes it by itself, in a checkout that is the test's own.
  const state = root === ROOT ? mkdtempSync(join(tmpdir(), "cotal-desk-")) : join(root, ".cotal", "desk");
  const server = `nats://127.0.0.1:${port}`;
  const host = { COTAL_STATE: state, COTAL_SERVER: server };
  const logs = (): Promise<string> => compose("logs", "--no-color", "--no-log-prefix");
  const gateway = async (): Promise<string> => {
    const { stdout } = await run("docker", ["network", "inspect", `${name}_outside`], options);
    const [network] = JSON.parse(stdout) as { readonly IPAM: { readonly Config: readonly { Gateway: string }[] } }[];
    return network?.IPAM.Config[0]?.Gateway ?? "";
  };
  return {
    name,
    server,
    prometheus: `http://127.0.0.1:${prometheusPort}`,
    compose,
    shell: async (commands, ends = 0) => {
      const { code, out, err } = await shellOf(commands, options);
      printed("shell", `${out}${err}`);
      if (code === ends) return out;
      throw new Error(`${commands}\nended with ${code ?? "a signal"}: ${out}\n${err}`);
    },
    containers,
    of: async (service) => {
      const number = ({ Config }: Container) => Number(Config.Labels["com.docker.compose.container-number"]);
      return (await containers())
        .filter(({ Config }) => Config.Labels["com.docker.compose.service"] === service)
        .toSorted((a, b) => number(a) - number(b));
    },
    logs,
    errors: async () => {
      const outside = `[ERR] ${await gateway()}:`;
      const isRefused = (line: string): boolean =>
        line.includes(outside) && REFUSALS.some((refusal) => line.includes(refusal));
      return (await logs()).split("\n").filter((line) => ERROR.test(line) && !isRefused(line));
    },
    crash: async ({ Name }) => {
      // `docker kill` would be taken for a wish: the restart policy sees to a process that dies.
      const kill =
        'for p in /proc/[0-9]*; do case "$(readlink "$p/exe")" in */node|*/nats-server) kill -9 "${p#/proc/}";; esac; done';
      await run("docker", ["exec", Name.slice(1), "sh", "-c", kill], options).catch(() => undefined);
    },
    state,
    desk: async (edge) => {
      const index = edge?.Config.Labels["com.docker.compose.container-number"] ?? "1";
      await run(join(root, "deploy", "desk"), [state, index], options);
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

type Shelled = { readonly code: number | null; readonly out: string; readonly err: string };

function shellOf(commands: string, { cwd, env }: { readonly cwd: string; readonly env: NodeJS.ProcessEnv }) {
  return new Promise<Shelled>((resolve, reject) => {
    const child = spawn("sh", ["-e", "-c", commands], { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    let [out, err] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (err += text));
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, out, err }));
  });
}
