/**
 * How a daemon's process is kept small: idle most of the time, and after a flood as small as before it.
 *
 * - A small young generation. Node's own grows to 128 MiB when it is busy and stays there. The auth
 *   service has more: with less, what its many connects in flight hold is taken for lasting, and is
 *   collected late.
 * - Buffers of 16 KiB and more are the kernel's, each by itself, and go back when they are freed. Inside
 *   the allocator's heap they leave holes that it keeps: what a socket reads comes in one of 64 KiB.
 *
 * Measured: docs/decisions/0018. glibc reads the variable; no other allocator minds it.
 */
const YOUNG_MIB = { auth: 8, others: 4 } as const;

export type DaemonMemory = {
  readonly flags: readonly string[];
  readonly env: Readonly<Record<string, string>>;
};

export function daemonMemory(name: string): DaemonMemory {
  const young = name === "auth" ? YOUNG_MIB.auth : YOUNG_MIB.others;
  return { flags: [`--max-semi-space-size=${young}`], env: { MALLOC_MMAP_THRESHOLD_: "16384" } };
}
