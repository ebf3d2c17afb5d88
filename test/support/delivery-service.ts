/**
 * The delivery service of a test's space as a process of its own, and a caller that may ask it: a daemon
 * whose credentials the test mints from the keys in the state folder.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import type { Principal } from "../../shared/protocol/base/principals.ts";
import {
  ORACLE_DEADLINE_MS,
  type PrincipalVerdict,
  PrincipalsAnswer,
} from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { daemonCredential, freshHolder } from "./holders.ts";
import { printed } from "./printed.ts";
import type { TestSpace } from "./space.ts";

const ROOT = join(import.meta.dirname, "..", "..");

export type DeliveryService = {
  /** Resolves once it serves. */
  readonly ready: () => Promise<void>;
  readonly log: () => string;
  readonly pid: () => number;
  readonly isRunning: () => boolean;
  readonly kill: (signal?: NodeJS.Signals) => Promise<void>;
  readonly restart: () => void;
};

/** Starts it; what it waits for need not be there. `more` is asked at each start for what else its environment holds. */
export function startDeliveryService(
  space: TestSpace,
  more: () => Readonly<Record<string, string>> = () => ({}),
): DeliveryService {
  const lines: string[] = [];
  let child: ChildProcess;
  let becoming: Promise<void>;
  const start = (): void => {
    const started = spawn(process.execPath, [join(ROOT, "services", "delivery", "main.ts")], {
      env: {
        ...process.env,
        COTAL_SERVERS: space.url,
        COTAL_SPACES: "*",
        COTAL_DELIVERY_KEYS: join(space.state, "spaces", "{space}", "delivery"),
        COTAL_PARENT_IPC: "true",
        ...more(),
      },
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    child = started;
    for (const stream of [started.stdout, started.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        lines.push(chunk.toString());
        printed("delivery", chunk.toString());
        if (lines.length > 2000) lines.shift();
      });
    }
    becoming = new Promise((resolve, reject) => {
      started.on("message", (message: { kind?: string }) => {
        if (message.kind === "ready") resolve();
      });
      started.once("exit", (code) => reject(new Error(`the delivery service ended with ${code}:\n${lines.join("")}`)));
    });
    becoming.catch(() => undefined);
  };
  start();
  return {
    ready: () => becoming,
    log: () => lines.join(""),
    pid: () => child.pid ?? 0,
    isRunning: () => child.exitCode === null && child.signalCode === null,
    kill: async (signal = "SIGKILL") => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill(signal);
      await ended;
    },
    restart: start,
  };
}

export type BarrierCaller = {
  readonly call: Call;
  readonly evict: (...principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
  readonly liveness: (...principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
};

/** A caller with the front profile of one of the two daemons that may ask. */
export async function barrierCaller(
  space: TestSpace,
  profile: "auth-server" | "provisioner",
  name = "main",
): Promise<BarrierCaller> {
  const fresh = freshHolder(`u_${"b".repeat(26)}`, `barrier_${profile.replace("-", "_")}`);
  const scope = { ...fresh, space: name, instanceId: fresh.holder.uid, epoch: 1 };
  const credential = await daemonCredential(space, profile, "front", scope);
  const connection = await space.open(credential);
  const call = createCaller({
    nc: connection.nc,
    space: name,
    caller: fresh.holder,
    name: fresh.holder.principal.actor,
    inboxPrefix: connection.inboxPrefix,
    denials: watchDenials(connection.nc),
    random: randomBytes,
  });
  const ask =
    (command: string) =>
    async (...principals: readonly Principal[]) => {
      const { data } = await call(EndpointName.Delivery, command, { principals }, { deadlineMs: ORACLE_DEADLINE_MS });
      return PrincipalsAnswer.parse(data).principals;
    };
  return { call, evict: ask("evict-principals"), liveness: ask("principal-liveness") };
}
