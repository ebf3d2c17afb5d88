/** What killed writers left on its way to a file of the state folder: cleared away by its one writer, and by nobody else. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { sweepState } from "../../launcher/state-folder.ts";
import { sweepTrust } from "../../services/trust/sweep.ts";

// Real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 60_000 });

const PROGRAM = join(import.meta.dirname, "..", "..", "services", "trust", "main.ts");
const DYING = join(import.meta.dirname, "..", "support", "dying-writes.ts");
const TMP = ".0123456789ab.tmp";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-sweep-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Everything that is unfinished below. */
const unfinished = (state: string): string[] =>
  readdirSync(state, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".tmp"))
    .toSorted();

type Strike = "before" | "stopped";

/** As another container on the same volume is: of its own network, and of its own processes. */
const APART = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];
const isApart = spawnSync("unshare", [...APART.slice(1), "true"]).status === 0;

/** The trust program, at work on the broker's own keys; struck at its first write. */
function init(state: string, strike?: Strike, behind: readonly string[] = []) {
  const struck =
    strike === undefined
      ? {}
      : { NODE_OPTIONS: `--import=${DYING}`, COTAL_TEST_WRITES: "1", COTAL_TEST_STRIKE: strike };
  const program = [process.execPath, PROGRAM, "init", "--state", state, "--host", "127.0.0.1", "--port", "4222"];
  const [command = "", ...args] = [...behind, ...program];
  const child = spawn(command, args, {
    env: { PATH: process.env["PATH"], ...struck },
    stdio: "ignore",
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = new Promise<number | null>((resolve) => child.once("close", (code) => resolve(code)));
  return { child, ended };
}

const isStopped = ({ pid }: ChildProcess): boolean => / T /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));

test("A.05 what a killed run of the trust program left is cleared away by the next one", async () => {
  const state = folder();
  expect(await init(state, "before").ended).toBe(null);
  expect(unfinished(state)).toEqual([expect.stringMatching(/^trust\/operator\.nk\.[0-9a-f]{12}\.tmp$/)]);
  expect(await init(state).ended).toBe(0);
  expect(unfinished(state)).toEqual([]);
  expect(existsSync(join(state, "trust", "operator.nk"))).toBe(true);
});

const PLACES: readonly (readonly [string, readonly string[]])[] = [
  ["beside it", []],
  ...(isApart ? [["from another container", APART] as const] : []),
];

test.runIf(process.platform === "linux").each(PLACES)(
  "A.05 what a run that is alive is writing is left alone, however long it takes: by another run %s",
  async (_, behind) => {
    const state = folder();
    const first = init(state, "stopped");
    await expect.poll(() => isStopped(first.child), { timeout: 30_000 }).toBe(true);
    const writing = unfinished(state);
    expect(writing).toHaveLength(1);
    const second = init(state, undefined, behind);
    // Long enough for whoever would not wait; nothing depends on it.
    await Promise.race([second.ended, sleep(1500)]);
    expect(unfinished(state)).toEqual(writing);
    first.child.kill("SIGCONT");
    expect(await Promise.all([first.ended, second.ended])).toEqual([0, 0]);
    expect(unfinished(state)).toEqual([]);
  },
);

test("A.05 each clears away what is its own to write, and nothing of the command line, the daemons or anybody else", () => {
  const state = folder();
  const plant = (...names: readonly string[]) =>
    names.map((name) => {
      mkdirSync(dirname(join(state, name)), { recursive: true });
      writeFileSync(join(state, name), "half");
      return name;
    });
  const own = "spaces/main";
  const half = (...names: readonly string[]) => plant(...names.map((name) => name + TMP));
  const trusts = [
    "trust/operator.nk",
    `${own}/trust/limits.json`,
    `${own}/provisioner/issued.json`,
    `${own}/sentinel.jwt`,
    `${own}/auth/bearer.jwk.next`,
    `${own}/operator/operator.creds`,
    `${own}/delivery/space.json`,
  ];
  plant(...trusts);
  const ofTrust = half(...trusts);
  const ofLauncher = half(
    "run/plane.json",
    "run/exchange-main.json",
    "plane.json",
    `${own}/auth/dev-person`,
    `${own}/auth/dev-issuer.jwk`,
  );
  const ofOthers = [...half(`${own}/login.json`, `${own}/agents/alice.creds`, "notes.txt"), ...plant("trust/mine.tmp")];
  const all = [...ofTrust, ...ofLauncher, ...ofOthers].toSorted();
  expect(unfinished(state)).toEqual(all);
  sweepTrust(state);
  expect(unfinished(state)).toEqual([...ofLauncher, ...ofOthers].toSorted());
  sweepState(state);
  expect(unfinished(state)).toEqual(ofOthers.toSorted());
  expect(existsSync(join(state, "trust", "operator.nk"))).toBe(true);
  for (const nothing of [folder(), join(state, "none")]) {
    sweepTrust(nothing);
    sweepState(nothing);
  }
});
