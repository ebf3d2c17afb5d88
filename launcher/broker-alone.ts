/**
 * The broker of a state folder without its daemons, for work that nobody may see half done.
 *
 * Invariant: it holds the folder as a launcher does, so no `cotal up` comes between, and it leaves no process.
 */
import { join } from "node:path";
import { brokerVersion, findBroker } from "./broker-binary.ts";
import { assertPortFree, launchBroker } from "./broker-process.ts";
import { takeLock } from "./lock.ts";
import { alreadyRuns } from "./plane.ts";
import { LOOPBACK, planePaths, prepareState } from "./state-folder.ts";
import { TrustCommand, runTrust } from "./trust-program.ts";

const GRACE_MS = 10_000;

/** Runs with a broker of its own; it is stopped, whatever happens. */
export async function withBroker<T>(state: string, port: number, run: (server: string) => Promise<T>): Promise<T> {
  prepareState(state);
  const lock = await takeLock(state);
  if (lock === undefined) throw alreadyRuns(state);
  try {
    await assertPortFree(LOOPBACK, port);
    const binary = findBroker(process.env);
    await brokerVersion(binary);
    await runTrust(TrustCommand.Init, { state, host: LOOPBACK, port: String(port) });
    const broker = await launchBroker({
      binary: binary.path,
      config: join(state, "broker", "nats-server.conf"),
      log: planePaths(state).log("broker"),
      host: LOOPBACK,
      port,
    });
    const kill = (): void => broker.kill();
    process.once("exit", kill);
    try {
      await broker.ready;
      return await run(`nats://${LOOPBACK}:${port}`);
    } finally {
      await broker.end(GRACE_MS);
      process.removeListener("exit", kill);
    }
  } finally {
    await lock.release();
  }
}
