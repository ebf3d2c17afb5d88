/** The parent's hold on one peer process of the `live` bench. */
import { fork } from "node:child_process";
import { join } from "node:path";
import { ask, endChild } from "./child.ts";
import type { JobName, OrderOf, ResultOf, Setup, SideName, Told } from "./jobs.ts";

export type Peer = {
  /** One job at a time. Rejects with what the peer says, or when it ends. */
  readonly run: <Name extends JobName>(name: Name, order: OrderOf<Name>) => Promise<ResultOf<Name>>;
  readonly stop: () => Promise<void>;
};

const PROGRAM = join(import.meta.dirname, "peer.ts");

export async function startPeer(side: SideName, setup: Setup, execArgv: readonly string[] = []): Promise<Peer> {
  const child = fork(PROGRAM, { serialization: "advanced", execArgv: [...execArgv] });
  const tell = (what: string, told: Told): Promise<unknown> => ask(child, what, told);
  await tell("setup", { kind: "setup", side, setup });
  return {
    run: async (name, order) => (await tell(name, { kind: "job", name, order })) as ResultOf<typeof name>,
    stop: () => endChild(child),
  };
}
