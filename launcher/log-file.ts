/**
 * The log of one child, bounded: a current file and the one before it.
 *
 * A plane that runs for months must not fill the disk, and a child that floods must not either.
 * Writes are synchronous, so the last line before an end is there; a full disk stops the log and
 * nothing else.
 */
import { closeSync, fstatSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";

export type LogFile = { readonly write: (chunk: Uint8Array) => void; readonly close: () => void };

const MAX_BYTES = 4 * 1024 * 1024;

export function openLogFile(path: string, maxBytes = MAX_BYTES): LogFile {
  let file: number | undefined = openSync(path, "a", 0o600);
  let size = fstatSync(file).size;
  const turn = (): void => {
    if (file !== undefined) closeSync(file);
    renameSync(path, `${path}.1`);
    file = openSync(path, "a", 0o600);
    size = 0;
  };
  return {
    write: (chunk) => {
      if (file === undefined) return;
      try {
        if (size > 0 && size + chunk.byteLength > maxBytes) turn();
        writeSync(file, chunk);
        size += chunk.byteLength;
      } catch {
        // No room, or the folder went away: the plane outlives its log.
      }
    },
    close: () => {
      if (file !== undefined) closeSync(file);
      file = undefined;
    },
  };
}

/** The last lines of a log, for an error message. */
export function lastLines(path: string, count: number): string[] {
  try {
    return readFileSync(path, "utf8").trimEnd().split("\n").slice(-count);
  } catch {
    return [];
  }
}
