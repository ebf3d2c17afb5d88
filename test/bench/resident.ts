/** Memory of a process, as the kernel counts it. */
import { readFileSync } from "node:fs";

export const residentMiB = (pid: number): number => shown(pid, "VmRSS");

/** The most that it ever was. */
export const peakMiB = (pid: number): number => shown(pid, "VmHWM");

function shown(pid: number, field: string): number {
  const kib = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  if (kib === undefined) throw new Error(`process ${pid} shows no memory`);
  return Number(kib) / 1024;
}
