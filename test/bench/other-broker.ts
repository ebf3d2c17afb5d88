/**
 * Another broker that a bench may stand beside, started with a folder and ports of its own, and what each must do: the
 * same work with the same guarantee, confirmed to the publisher, on disk where it has such a setting.
 */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

export type OtherBroker = {
  /** Leads the names of its metrics. */
  readonly name: string;
  /** Makes so many receivers, who are away, of one fanout. */
  readonly receivers: (count: number) => Promise<void>;
  /** Publishes so many to all receivers; resolves once each is confirmed. */
  readonly flood: (posts: number) => Promise<void>;
  /** Takes away what waits for them. */
  readonly empty: () => Promise<void>;
  /** Forgets the receivers and what waits for them. */
  readonly forget: () => Promise<void>;
  /** One receiver, alone, comes back to so many; milliseconds until it has acknowledged them all. */
  readonly catchUp: (count: number) => Promise<number>;
  /** Milliseconds from each publish to its message at a receiver that is there; one at a time. */
  readonly latency: (count: number) => Promise<number[]>;
  /** Kills it with SIGKILL and starts it again; how many wait for all receivers then. */
  readonly afterKill: () => Promise<number>;
  readonly stop: () => Promise<void>;
};

/** The first place of the search path that has this program. */
export function findProgram(name: string, env: NodeJS.ProcessEnv): string | undefined {
  const places = (env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return places.map((folder) => join(folder, name)).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
