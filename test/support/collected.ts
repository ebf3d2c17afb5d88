/**
 * Memory of a real process once all that nobody holds is gone, without any hook in the product: it runs
 * with Node's own inspector, and is asked over it to collect.
 *
 * `HeapProfiler.collectGarbage` collects as V8 does when memory is low, and gives empty pages back. A bare
 * `gc()` keeps what the young generation has grown to, and empty pages besides (measured): memory of the
 * past's busiest moment, which says nothing about a leak.
 */
import { daemonMemory } from "../../launcher/daemon-memory.ts";
import { residentMiB } from "./vitals.ts";

const { env, flags } = daemonMemory("auth");

/** Environment of an auth service as the launcher starts it. */
export const AS_LAUNCHED: Readonly<Record<string, string>> = { ...env, NODE_OPTIONS: flags.join(" ") };

/** The same for a process that is to be asked. */
export const INSPECTED: Readonly<Record<string, string>> = {
  ...AS_LAUNCHED,
  NODE_OPTIONS: `${flags.join(" ")} --inspect=127.0.0.1:0`,
};

export type Watched = {
  /** Resident memory in MiB after a collection. */
  readonly collectedMiB: () => Promise<number>;
};

/** A process that has just started: its log says where its inspector is. */
export function watchMemory({ pid, log }: { readonly pid: () => number; readonly log: () => string }): Watched {
  const address = /ws:\/\/127\.0\.0\.1:\d+\/[0-9a-f-]+/.exec(log())?.[0];
  if (address === undefined) throw new Error("the process was started without an inspector");
  return {
    collectedMiB: async () => {
      await collect(address);
      return residentMiB(pid());
    },
  };
}

async function collect(address: string): Promise<void> {
  const socket = new WebSocket(address);
  const next = (event: string): Promise<unknown> =>
    new Promise((resolve, reject) => {
      socket.addEventListener(event, resolve, { once: true });
      socket.addEventListener("error", () => reject(new Error("the inspector went away")), { once: true });
    });
  await next("open");
  // Twice: what finalisers let go in the first is found by the second.
  for (const id of [1, 2]) {
    const done = next("message");
    socket.send(JSON.stringify({ id, method: "HeapProfiler.collectGarbage" }));
    await done;
  }
  const closed = next("close");
  socket.close();
  await closed;
}
