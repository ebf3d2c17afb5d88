/** The delivery service as a process of its own: started, killed, started again. */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { printed } from "./printed.ts";

const ROOT = join(import.meta.dirname, "..", "..");

export type DeliveryService = {
  /** Resolves once it serves. */
  readonly ready: () => Promise<void>;
  readonly log: () => string;
  readonly pid: () => number;
  readonly kill: (signal?: NodeJS.Signals) => Promise<void>;
  readonly restart: () => void;
};

export type DeliveryOrder = {
  readonly state: string;
  readonly url: string;
  /** Those of a broker without accounts, which have no keys by which it could find them. */
  readonly open?: readonly string[];
};

/** Starts it; what it waits for need not be there. */
export function spawnDelivery({ state, url, open }: DeliveryOrder): DeliveryService {
  const lines: string[] = [];
  let child: ChildProcess;
  let becoming: Promise<void>;
  const start = (): void => {
    const started = spawn(process.execPath, [join(ROOT, "services", "delivery", "main.ts")], {
      env: {
        ...process.env,
        COTAL_SERVERS: url,
        COTAL_SPACES: open?.join(",") ?? "*",
        COTAL_BROKER: open === undefined ? "accounts" : "open",
        COTAL_DELIVERY_KEYS: join(state, "spaces", "{space}", "delivery"),
        COTAL_PARENT_IPC: "true",
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
    kill: async (signal = "SIGKILL") => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill(signal);
      await ended;
    },
    restart: start,
  };
}
