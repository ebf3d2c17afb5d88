/** Stops a process, and hands back only once none of its threads runs: on a loaded machine one may run on for a moment. */
import { readFileSync, readdirSync } from "node:fs";

const WAIT_MS = 10_000;

/** SIGSTOP. Where there is no /proc it is only sent. */
export function stopProcess(pid: number): void {
  process.kill(pid, "SIGSTOP");
  if (process.platform !== "linux") return;
  const until = performance.now() + WAIT_MS;
  while (!isStopped(pid)) {
    if (performance.now() > until) throw new Error(`process ${pid} was not stopped within ${WAIT_MS} ms`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  }
}

function isStopped(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  // The state follows the name, which is in brackets and may hold any byte.
  return readdirSync(tasks).every((task) => {
    try {
      return /^.*\) T /s.test(readFileSync(`${tasks}/${task}/stat`, "utf8"));
    } catch {
      return true; // It has ended meanwhile.
    }
  });
}
