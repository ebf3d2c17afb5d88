/**
 * Faults by a schedule that one seed makes: the broker or the provisioner is killed and started
 * again, or stands still for a while. One fault at a time; at the end both run.
 */
import type { Draw } from "./seeded.ts";
import type { TestSpace } from "./space.ts";
import { sleep } from "./vitals.ts";
import { stopProcess } from "./stopped.ts";

export type Fault = {
  /** Calm before it. */
  readonly afterMs: number;
  readonly victim: "broker" | "provisioner";
  readonly act: "kill" | "freeze";
  readonly lastsMs: number;
};

/** Faults for so many milliseconds. */
export function schedule({ int, chance, pick }: Draw, totalMs: number): Fault[] {
  const faults: Fault[] = [];
  for (let at = 0; ;) {
    const act = chance(0.7) ? "kill" : "freeze";
    const fault: Fault = {
      act,
      afterMs: int(5000, 10_000),
      victim: pick(["broker", "provisioner"]),
      lastsMs: act === "kill" ? int(0, 1500) : int(3000, 8000),
    };
    at += fault.afterMs + fault.lastsMs;
    if (at > totalMs) return faults;
    faults.push(fault);
  }
}

export async function inflict(space: TestSpace, faults: readonly Fault[]): Promise<void> {
  const hurt = {
    broker: {
      kill: async (ms: number) => {
        await space.broker.kill();
        await sleep(ms);
        await space.broker.restart();
      },
      freeze: async (ms: number) => {
        space.broker.freeze();
        await sleep(ms);
        space.broker.thaw();
      },
    },
    provisioner: {
      kill: async (ms: number) => {
        await space.provisioner.kill("SIGKILL");
        await sleep(ms);
        await space.provisioner.restart();
      },
      freeze: async (ms: number) => {
        stopProcess(space.provisioner.pid());
        await sleep(ms);
        process.kill(space.provisioner.pid(), "SIGCONT");
      },
    },
  };
  for (const { afterMs, victim, act, lastsMs } of faults) {
    await sleep(afterMs);
    await hurt[victim][act](lastsMs);
  }
}
