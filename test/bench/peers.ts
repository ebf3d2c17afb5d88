/** The parent's hold on one peer process. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Answered, JobName, OrderOf, ResultOf, Setup, SideName, Told } from "./jobs.ts";

export type Peer = {
  /** One job at a time. Rejects with what the peer says, or when it ends. */
  readonly run: <Name extends JobName>(name: Name, order: OrderOf<Name>) => Promise<ResultOf<Name>>;
  readonly stop: () => Promise<void>;
};

const PROGRAM = join(import.meta.dirname, "peer.ts");

export async function startPeer(side: SideName, setup: Setup, execArgv: readonly string[] = []): Promise<Peer> {
  const child = fork(PROGRAM, { serialization: "advanced", execArgv: [...execArgv] });
  await ask(child, { kind: "setup", side, setup });
  return {
    run: async (name, order) => (await ask(child, { kind: "job", name, order })) as ResultOf<typeof name>,
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.disconnect();
      await ended;
    },
  };
}

function ask(child: ChildProcess, told: Told): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const ended = (code: number | null): void => reject(new Error(`a peer ended with ${code ?? "a signal"}`));
    child.once("exit", ended);
    child.once("message", (answered: Answered) => {
      child.off("exit", ended);
      if (answered.ok) resolve(answered.result);
      else reject(new Error(`a peer failed: ${answered.message}`));
    });
    child.send(told);
  });
}
