/**
 * `npm test [files]`: runs vitest and ends with one plain line, `N passed, N failed`.
 *
 * Invariants
 * 1. The line is the last thing on standard output, whatever happened, and the exit code agrees.
 * 2. The counts are vitest's own results (scripts/test/reporter.ts); a run that ended otherwise
 *    than they say counts one failure more, and so does each output that holds a secret, and each credential that was
 *    issued and has no row in its ledger (scripts/test/issued.ts).
 *
 * `--long` adds test/long/** (and test/container/long/**) and, when the run is complete (no file filter), writes
 * the report. `--container` runs the container suite alone, `--with-container` after the others of a complete run,
 * where there is a Docker: where there is none it is skipped, and that is said before the last line.
 * `--again` runs each of at most six files that failed once more, alone (scripts/test/again.ts).
 * Every other argument goes to vitest as it is.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterSecond, runAgain } from "./test/again.ts";
import { findDocker } from "./test/docker.ts";
import { auditIssued } from "./test/issued.ts";
import { LONG_REPORT, longReport, testedCommit } from "./test/report.ts";
import { TALLY_FILE } from "./test/reporter.ts";
import { PRINTED_FOLDER, findLeaks } from "./test/secrets.ts";
import { NOTHING, type Reported, type Tally, add, isGood, parseReported, settle, tallyLine } from "./test/tally.ts";

const VITEST = join(import.meta.dirname, "..", "node_modules", "vitest", "vitest.mjs");
const CONTAINER_CONFIG = join(import.meta.dirname, "..", "vitest.container.config.ts");
const REPORTER = join(import.meta.dirname, "test", "reporter.ts");

/** Runs vitest in `root` to its end, with its output passed through. */
async function runVitest(root: string, args: readonly string[]): Promise<Reported> {
  const folder = mkdtempSync(join(tmpdir(), "cotal-tally-"));
  const printed = mkdtempSync(join(tmpdir(), "cotal-printed-"));
  const file = join(folder, "tally.json");
  try {
    const child = spawn(process.execPath, [VITEST, "run", "--reporter=default", `--reporter=${REPORTER}`, ...args], {
      cwd: root,
      env: { ...process.env, [TALLY_FILE]: file, [PRINTED_FOLDER]: printed },
      stdio: ["ignore", "inherit", "inherit"],
    });
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => child.kill(signal));
    const exitCode = await new Promise<number | null>((ended) => {
      child.once("error", () => ended(null));
      child.once("exit", ended);
    });
    const reported = existsSync(file) ? parseReported(readFileSync(file, "utf8")) : undefined;
    if (reported === undefined) console.log(`vitest ended (${exitCode ?? "by a signal"}) without a result`);
    const settled = settle(reported, exitCode);
    const more = sayLeaks(printed) + sayUnledgered(printed);
    return { ...settled, failed: settled.failed + more, failing: reported?.failing ?? [] };
  } finally {
    rmSync(folder, { recursive: true, force: true });
    rmSync(printed, { recursive: true, force: true });
  }
}

/** Runs vitest, and the few files that failed once more where that is wanted; says which passed only then. */
async function runTests(root: string, args: readonly string[], again: boolean): Promise<Tally> {
  const reported = await runVitest(root, args);
  if (!again) return reported;
  let tally: Tally = reported;
  const late: string[] = [];
  for (const { file, tally: first } of runAgain(reported)) {
    console.log(`once more, alone: ${relative(root, file)}`);
    const second = await runVitest(root, [...args, file]);
    if (isGood(second)) late.push(relative(root, file));
    tally = afterSecond(tally, first, second);
  }
  if (late.length > 0) console.log(`PASSED ONLY THE SECOND TIME, ALONE: ${late.join(", ")}`);
  return tally;
}

/** Says which output held a secret; how many did. */
function sayLeaks(printed: string): number {
  const { leaks, files, known } = findLeaks(printed);
  for (const { kind, where } of leaks) console.log(`a secret was printed: ${kind}, in the output ${where}`);
  console.log(`no process may print a secret: ${files} outputs looked through, for ${known} secrets and by form`);
  return leaks.length;
}

/** Says which credential has no row; how many have none. */
function sayUnledgered(printed: string): number {
  const { without, issued, unasked } = auditIssued(printed);
  for (const one of without) console.log(`a credential was issued and has no row in the ledger: ${one}`);
  const rest = unasked === 0 ? "" : `; of ${unasked} the ledger could not be asked, for its broker was gone`;
  console.log(`no credential without its row: ${issued} issued, as their brokers and the exchange say${rest}`);
  return without.length;
}

/** The container suite; `undefined` where it can't run through no fault of the project's. */
async function runContainers(root: string, args: readonly string[], again: boolean): Promise<Tally | undefined> {
  const docker = findDocker(root);
  if (docker.kind === "ready") return runTests(root, ["--config", CONTAINER_CONFIG, ...args], again);
  console.log(`THE CONTAINER SUITE DID NOT RUN: ${docker.why}`);
  return docker.kind === "absent" ? undefined : { ...NOTHING, failed: 1 };
}

const MODES = ["--long", "--container", "--with-container", "--again"] as const;
const root = process.cwd();
const args = process.argv.slice(2).filter((arg) => !MODES.some((mode) => mode === arg));
const [long, containersAlone, containersToo, again] = MODES.map((mode) => process.argv.includes(mode));
const began = performance.now();

const without = (folder: string): readonly string[] => (long === true ? args : ["--exclude", `${folder}/**`, ...args]);
const own = (): Promise<Tally> => runTests(root, without("test/long"), again === true);
const containers = async (): Promise<Tally> =>
  (await runContainers(root, without("test/container/long"), again === true)) ?? NOTHING;
const isWhole = args.length === 0;
const tally = containersAlone === true ? NOTHING : await own();
const withContainers = containersAlone === true || (containersToo === true && isWhole);
const whole = add(tally, withContainers ? await containers() : NOTHING);
if (long === true && isWhole && containersAlone !== true) {
  const seconds = (performance.now() - began) / 1000;
  writeFileSync(join(root, LONG_REPORT), longReport({ commit: testedCommit(root), date: new Date(), seconds, tally }));
}
if (!isGood(whole)) process.exitCode = 1;
console.log(tallyLine(whole));
