/**
 * One change of a state's trust at a time.
 *
 * A revocation is read, added to, written, signed into an account and pushed. Two programs that do this
 * at once lose one of the two: the list that is pushed last may lack what the other has just added.
 *
 * On Linux the lock is a name in the kernel (an abstract socket made from the folder's device and
 * inode): exclusive, and gone with its holder however that ends, so nobody judges whether it is stale.
 * Elsewhere there is none, and changes must be made one after the other.
 */
import { createHash } from "node:crypto";
import { mkdirSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";

/** Longer than any run takes that makes progress (a revocation waits ten seconds for connections to end). */
const WAIT_MS = 20_000;
const POLL_MS = 25;

/** Runs alone among all that change the trust of this folder. */
export async function alone<T>(folder: string, run: () => Promise<T>): Promise<T> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const release = await take(folder);
  try {
    return await run();
  } finally {
    release();
  }
}

async function take(folder: string): Promise<() => void> {
  if (process.platform !== "linux") return () => undefined;
  const name = lockName(folder);
  const deadline = performance.now() + WAIT_MS;
  for (;;) {
    const release = await tryTake(name);
    if (release !== undefined) return release;
    if (performance.now() > deadline) throw held(folder);
    await sleep(POLL_MS);
  }
}

function tryTake(name: string): Promise<(() => void) | undefined> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      error.code === "EADDRINUSE" ? resolve(undefined) : reject(error),
    );
    server.listen({ path: name, exclusive: true }, () => {
      server.unref();
      resolve(() => void server.close());
    });
  });
}

function lockName(folder: string): string {
  const { dev, ino } = statSync(folder, { bigint: true });
  const uid = process.getuid?.() ?? 0;
  return `\0cotal-trust-${createHash("sha256").update(`${uid} ${dev} ${ino}`).digest("hex").slice(0, 32)}`;
}

function held(folder: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `another run changes the trust in ${folder}`, {
    outcome: Outcome.NotExecuted,
    next: "wait until it has ended, then run the same command again",
  });
}
