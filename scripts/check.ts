/**
 * `npm run check`: one line per step, and the whole output of each step that fails.
 *
 * Every step runs even when an earlier one failed, so one run shows everything there is to mend.
 */
import { spawn } from "node:child_process";
import { delimiter, join } from "node:path";
import { checkConformance } from "./check/conformance.ts";
import { checkFloors } from "./check/floors.ts";
import { checkLiterals } from "./check/literals.ts";
import { checkLockfile } from "./check/lockfile.ts";
import { type Checker, type Tree, gitTree } from "./check/tree.ts";
import { checkWords } from "./check/words.ts";

const ROOT = join(import.meta.dirname, "..");

type Outcome = { readonly ok: boolean; readonly note?: string | undefined; readonly output: string };

const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  types: ["tsc", "--noEmit", "-p", "."],
  lint: ["oxlint", "--deny-warnings"],
  format: ["oxfmt", "--check"],
};

const CHECKERS: Readonly<Record<string, Checker>> = {
  floors: checkFloors,
  literals: checkLiterals,
  conformance: checkConformance,
  lockfile: checkLockfile,
  words: checkWords,
};

function runCommand([command = "", ...args]: readonly string[]): Promise<Outcome> {
  const path = [join(ROOT, "node_modules", ".bin"), process.env["PATH"] ?? ""].join(delimiter);
  // The output lands in a log: no colours, which some of these tools turn on when CI is set.
  const env = { ...process.env, PATH: path, NO_COLOR: "1", FORCE_COLOR: undefined, CI: undefined };
  const child = spawn(command, args, { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
  const chunks: Buffer[] = [];
  const keep = (chunk: Buffer): void => void chunks.push(chunk);
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  return new Promise((settle) => {
    child.once("error", (error) => settle({ ok: false, output: error.message }));
    child.once("close", (code) => settle({ ok: code === 0, output: Buffer.concat(chunks).toString() }));
  });
}

function runChecker(checker: Checker, tree: Tree): Outcome {
  try {
    const { problems, note } = checker(tree);
    return { ok: problems.length === 0, note, output: problems.join("\n") };
  } catch (error) {
    return { ok: false, output: error instanceof Error ? error.message : String(error) };
  }
}

function report(name: string, { ok, note, output }: Outcome): boolean {
  console.log(`${ok ? "ok  " : "FAIL"} ${name}${note === undefined ? "" : ` (${note})`}`);
  if (!ok) console.log(output.trimEnd().replace(/^/gm, "     "));
  return ok;
}

// The commands are processes of their own: all start at once and are reported in order.
const running = Object.entries(COMMANDS).map(([name, command]) => ({ name, outcome: runCommand(command) }));
const failed: string[] = [];
for (const { name, outcome } of running) if (!report(name, await outcome)) failed.push(name);
const tree = gitTree(ROOT);
for (const [name, checker] of Object.entries(CHECKERS)) if (!report(name, runChecker(checker, tree))) failed.push(name);
if (failed.length > 0) {
  console.log(`check failed: ${failed.join(", ")}`);
  process.exitCode = 1;
}
