/**
 * One plane for each test: a temporary state folder, a free port, and the ways a terminal and a
 * crash treat its processes. After each test everything is ended, also what was frozen.
 */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect } from "vitest";
import { type Running, type TestPlane, eventually, leftOf, planeOn, startCli } from "./cli.ts";
import { freePort } from "./nats-server.ts";

export type PlaneRig = {
  readonly plane: TestPlane;
  readonly state: string;
  readonly port: number;
  /** Arguments of `up` for this state. */
  readonly up: (...args: string[]) => string[];
  /** A foreground `up` in its own process group, as a terminal would have it; ready. */
  readonly foreground: (options?: { readonly node?: string }) => Promise<Running>;
  readonly expectNothingLeft: () => Promise<void>;
};

const CHILDREN = ["launcher", "broker", "provisioner", "auth"] as const;

/** Registers the hooks; the rig's fields are those of the test that runs. Planes are made as `mode` says, if it is given. */
export function planeRig(mode: readonly string[] = []): PlaneRig {
  let state = "";
  let port = 0;
  let plane = planeOn("", 0);
  beforeEach(async () => {
    state = mkdtempSync(join(tmpdir(), "cotal-up-"));
    port = await freePort();
    plane = planeOn(state, port);
  });
  afterEach(async () => {
    for (const child of CHILDREN) resume(plane.pid(child));
    await plane.stop();
  });
  const up = (...args: string[]): string[] => ["up", "--state", state, "--port", String(port), ...mode, ...args];
  return {
    get plane() {
      return plane;
    },
    get state() {
      return state;
    },
    get port() {
      return port;
    },
    up,
    foreground: async (options = {}) => {
      const running = startCli(up("--json"), { group: true, ...options });
      // Three daemons start at once; a slow machine needs the room.
      await running.saying('"kind":"ready"', 60_000);
      return running;
    },
    expectNothingLeft: async () => {
      const left = await eventually(
        () => leftOf(state),
        (found) => found.length === 0,
        5000,
      );
      expect(left).toEqual([]);
    },
  };
}

/** Ctrl-C in a terminal reaches every process of the foreground group. */
export function ctrlC(running: Running): void {
  process.kill(-(running.process.pid ?? 0), "SIGINT");
}

function resume(pid: number): void {
  if (pid <= 0) return;
  try {
    process.kill(pid, "SIGCONT");
  } catch {
    // It is gone, which is what most tests are about.
  }
}
