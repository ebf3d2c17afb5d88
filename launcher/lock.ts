/**
 * One launcher per state folder.
 *
 * On Linux the lock is a name in the kernel (an abstract socket made from the folder's device and
 * inode): it is exclusive, and it vanishes with its holder however that ends, so it is never stale
 * and nobody has to judge whether it is. Elsewhere the plane's record with its process identity is
 * all there is.
 */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import { connect, createServer } from "node:net";
import { livePlane } from "./plane-record.ts";

export type Lock = { readonly release: () => Promise<void> };

/** Takes the lock of the folder, which must exist; `undefined` if another process holds it. */
export async function takeLock(state: string): Promise<Lock | undefined> {
  if (process.platform !== "linux") {
    return livePlane(state) === undefined ? { release: () => Promise.resolve() } : undefined;
  }
  const server = createServer((socket) => socket.destroy());
  const held = await new Promise<boolean>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      error.code === "EADDRINUSE" ? resolve(false) : reject(error),
    );
    server.listen({ path: lockName(state), exclusive: true }, () => resolve(true));
  });
  if (!held) return undefined;
  server.unref();
  return { release: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** True while some launcher holds the folder; asks without taking it. */
export function isLocked(state: string): Promise<boolean> {
  if (process.platform !== "linux") return Promise.resolve(livePlane(state) !== undefined);
  return new Promise((resolve) => {
    const socket = connect({ path: lockName(state) });
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("close", () => socket.destroy());
  });
}

function lockName(state: string): string {
  const { dev, ino } = statSync(state, { bigint: true });
  const uid = process.getuid?.() ?? 0;
  return `\0cotal-${createHash("sha256").update(`${uid} ${dev} ${ino}`).digest("hex").slice(0, 32)}`;
}
