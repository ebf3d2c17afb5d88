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
  /** What is in use of it, in MiB: the heap, and the buffers that it holds. What is kept for good shows here first. */
  readonly heldMiB: () => Promise<number>;
};

/** A process that has just started: its log says where its inspector is. */
export function watchMemory({ pid, log }: { readonly pid: () => number; readonly log: () => string }): Watched {
  const address = /ws:\/\/127\.0\.0\.1:\d+\/[0-9a-f-]+/.exec(log())?.[0];
  if (address === undefined) throw new Error("the process was started without an inspector");
  return {
    collectedMiB: async () => {
      await inspect(address, COLLECT);
      return residentMiB(pid());
    },
    heldMiB: async () => {
      const [, , usage] = await inspect(address, [...COLLECT, "Runtime.getHeapUsage"]);
      const { usedSize, backingStorageSize } = usage as { usedSize: number; backingStorageSize: number };
      return (usedSize + backingStorageSize) / 2 ** 20;
    },
  };
}

/** Twice: what finalisers let go in the first is found by the second. */
const COLLECT = ["HeapProfiler.collectGarbage", "HeapProfiler.collectGarbage"] as const;

/** What each of these commands answered. */
async function inspect(address: string, methods: readonly string[]): Promise<unknown[]> {
  const socket = new WebSocket(address);
  const next = <T extends Event>(event: string): Promise<T> =>
    new Promise((resolve, reject) => {
      socket.addEventListener(event, (told) => resolve(told as T), { once: true });
      socket.addEventListener("error", () => reject(new Error("the inspector went away")), { once: true });
    });
  await next("open");
  const answers: unknown[] = [];
  for (const [id, method] of methods.entries()) {
    const answer = next<MessageEvent>("message");
    socket.send(JSON.stringify({ id, method }));
    answers.push((JSON.parse(String((await answer).data)) as { result: unknown }).result);
  }
  const closed = next("close");
  socket.close();
  await closed;
  return answers;
}
