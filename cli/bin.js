#!/usr/bin/env node
/*
 * Starts the CLI on Node 24 or newer, whatever Node the machine has: this file alone is plain
 * JavaScript that Node 20 runs, and hands over to the binary of the npm package `node` if it must.
 *
 * Invariant: signals, standard streams and the exit code pass through. A Ctrl-C reaches the child
 * from the terminal as well as from here; the CLI takes both as one (launcher/stop-signals.ts).
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const FLOOR = 24;
const here = dirname(fileURLToPath(import.meta.url));
const main = join(here, "main.ts");
const cache = process.env.NODE_COMPILE_CACHE ?? join(here, "..", "node_modules", ".cache", "cotal");

if (Number(process.versions.node.split(".")[0]) >= FLOOR) {
  module.enableCompileCache(cache);
  await import("./main.ts");
} else {
  const node = bundledNode();
  if (node === undefined) refuse();
  else handOver(node);
}

function bundledNode() {
  try {
    const path = join(dirname(module.createRequire(import.meta.url).resolve("node/package.json")), "bin", "node");
    return existsSync(path) ? path : undefined;
  } catch {
    return undefined;
  }
}

/** @param {string} node */
function handOver(node) {
  const child = spawn(node, [main, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  });
  /** @type {NodeJS.Signals[]} */
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, () => child.kill(signal));
  child.once("error", (error) => {
    process.stderr.write(`cotal: ${node} can't be started: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.once("exit", (code, signal) => {
    for (const one of signals) process.removeAllListeners(one);
    if (signal === null) process.exitCode = code ?? 1;
    else process.kill(process.pid, signal);
  });
}

function refuse() {
  const message = `cotal needs Node ${FLOOR} or newer, and this is ${process.version}`;
  const next = "run npm ci here, which brings it, or install Node 24";
  const error = { kind: "error", code: "failed-precondition", message, next };
  if (process.argv.includes("--json")) process.stdout.write(`${JSON.stringify(error)}\n`);
  else process.stderr.write(`cotal: ${message}\n  ${next}\n`);
  process.exitCode = 1;
}
