/** A hosted endpoint in a process of its own, for tests that end it at a chosen moment of a call. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";

export type HostedProcess = {
  readonly instanceId: string;
  /** Ids of calls whose handler has begun. */
  readonly begun: readonly string[];
  /** Resolves once a handler has begun. */
  readonly begins: () => Promise<void>;
  /** Lets a handler go on to its answer. */
  readonly go: () => void;
  readonly kill: (signal?: NodeJS.Signals) => Promise<void>;
};

export async function startHosted(url: string, credential: string, endpoint: string): Promise<HostedProcess> {
  const child: ChildProcess = fork(join(import.meta.dirname, "hosted-child.ts"), {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const begun: string[] = [];
  const waiting = new Set<() => void>();
  child.send({ url, credential, endpoint });
  const instanceId = await new Promise<string>((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`the hosted process ended with ${code}`)));
    child.on("message", (told: { readonly ready?: string; readonly begun?: string }) => {
      if (told.ready !== undefined) resolve(told.ready);
      if (told.begun === undefined) return;
      begun.push(told.begun);
      for (const wake of waiting) wake();
      waiting.clear();
    });
  });
  return {
    instanceId,
    begun,
    begins: () => new Promise((resolve) => waiting.add(resolve)),
    go: () => void child.send({ go: true }),
    kill: async (signal = "SIGKILL") => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.kill(signal);
      await ended;
    },
  };
}
