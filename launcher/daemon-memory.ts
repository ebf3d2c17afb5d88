/**
 * How a daemon's process is kept small: idle most of the time, and after a flood as small as before it.
 *
 * - A small young generation. Node's own grows to 128 MiB when it is busy and stays there.
 * - Buffers of 32 KiB and more are the kernel's, each by itself, and go back when they are freed. Inside
 *   the allocator's heap they leave holes that it keeps: what a socket reads comes in one of 64 KiB
 *   (measured on the auth service: 30,000 connects with 50 KB of junk each left 78 MiB so, and 2 like this).
 *
 * Together: 109 MB at a first start, which compiles, and 95 MB at each one after that; 133 and 110
 * without. glibc reads the variable; where there is none it says nothing.
 */
export const DAEMON_MEMORY = {
  flags: ["--max-semi-space-size=4"],
  env: { MALLOC_MMAP_THRESHOLD_: "32768" },
} as const;
