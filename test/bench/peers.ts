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

/** No job takes nearly as long: a peer that is silent waits for something that never comes. */
const LONGEST_MS = 60_000;
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
    const settle = (end: () => void): void => {
      clearTimeout(timer);
      child.off("exit", ended).off("message", answered);
      end();
    };
    const fail = (why: string): void => settle(() => reject(new Error(why)));
    const what = told.kind === "job" ? told.name : told.kind;
    const ended = (code: number | null): void => fail(`a peer ended with ${code ?? "a signal"} at ${what}`);
    const answered = (answer: Answered): void => {
      if (answer.ok) settle(() => resolve(answer.result));
      else fail(`a peer failed at ${what}: ${answer.message}`);
    };
    const timer = setTimeout(() => fail(`a peer has been silent for ${LONGEST_MS} ms at ${what}`), LONGEST_MS);
    child.once("exit", ended).once("message", answered);
    child.send(told);
  });
}
