/**
 * A secret comes from a file, and is read again at each use.
 *
 * Read again, so that a rotation needs no restart and no copy outlives its use. Synchronous, because
 * the broker client's authenticator asks for its credential synchronously at each dial.
 *
 * Invariants
 * 1. A regular file of at most 64 KiB, or nothing: a device, a pipe or a directory is refused unread.
 * 2. No message of this file holds the content, nor the path: a variable that should name a file
 *    sometimes holds the secret itself.
 * 3. A file that others can read is used but told: a mounted container secret is 0444 by default.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";

export const MAX_SECRET_BYTES = 64 * 1024;

export type SecretRead =
  | { readonly ok: true; readonly text: string; readonly warning?: string }
  | { readonly ok: false; readonly why: string };

/** The trimmed content of a secret file, or what is wrong, for whoever collects several problems. */
export function inspectSecret(path: string): SecretRead {
  let fd: number | undefined;
  try {
    // Without O_NONBLOCK the open of a pipe waits for its writer.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stat = fstatSync(fd);
    if (!stat.isFile()) return refused("is no regular file");
    const bytes = Buffer.alloc(MAX_SECRET_BYTES + 1);
    const size = readFully(fd, bytes);
    if (size > MAX_SECRET_BYTES) return refused(`is larger than ${MAX_SECRET_BYTES} bytes`);
    const text = bytes.toString("utf8", 0, size).trim();
    bytes.fill(0);
    if (text === "") return refused("is empty");
    const open = (stat.mode & 0o077) !== 0;
    return open
      ? { ok: true, text, warning: `is open to others (mode ${modeText(stat.mode)}); make it 0600` }
      : { ok: true, text };
  } catch (error) {
    return refused(WHY[errorCode(error)] ?? `cannot be read (${errorCode(error)})`);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

const WHY: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  ENOTDIR: "does not exist",
  EACCES: "may not be read by this process",
  EISDIR: "is no regular file",
  ENAMETOOLONG: "has too long a name to be a file",
};

function refused(why: string): SecretRead {
  return { ok: false, why };
}

function readFully(fd: number, into: Buffer): number {
  let size = 0;
  for (let got = -1; got !== 0 && size < into.length; size += got) {
    got = readSync(fd, into, size, into.length - size, null);
  }
  return size;
}

function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown fault";
}

function modeText(mode: number): string {
  return `0${(mode & 0o777).toString(8)}`;
}
