/**
 * Files of lines: written once with their digest, read again line by line.
 *
 * Invariants
 * 1. Memory holds a few lines and never a file: both ways wait for the slower side.
 * 2. A file counts as written once its bytes are on the disk.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pipeline } from "node:stream/promises";
import type { z } from "zod";
import { type File, damaged } from "./format.ts";

const BUFFER_BYTES = 256 * 1024;
const NEWLINE = 10;

/** Writes one file of lines; what it was handed is on the disk when this resolves. */
export async function writeLines(folder: string, name: string, lines: AsyncIterable<object>): Promise<File> {
  const handle = await open(join(folder, name), "wx", 0o600);
  try {
    const written = await drain(handle, lines);
    await handle.sync();
    return { name, ...written };
  } finally {
    await handle.close();
  }
}

async function drain(handle: FileHandle, lines: AsyncIterable<object>): Promise<Omit<File, "name">> {
  const hash = createHash("sha256");
  let [bytes, count, held] = [0, 0, 0];
  let waiting: string[] = [];
  const flush = async (): Promise<void> => {
    const chunk = Buffer.from(waiting.join(""));
    [waiting, held] = [[], 0];
    hash.update(chunk);
    bytes += chunk.length;
    // Whole or not at all: a short write is repeated by the library.
    await handle.appendFile(chunk);
  };
  for await (const line of lines) {
    const text = `${JSON.stringify(line)}\n`;
    waiting.push(text);
    held += text.length;
    count += 1;
    if (held >= BUFFER_BYTES) await flush();
  }
  await flush();
  return { sha256: hash.digest("hex"), bytes, lines: count };
}

/** A file that somebody else has written into the folder. */
export async function digestFile(folder: string, name: string): Promise<File> {
  const hash = createHash("sha256");
  let [bytes, lines] = [0, 0];
  try {
    await pipeline(createReadStream(join(folder, name)), async (chunks: AsyncIterable<Buffer>) => {
      for await (const chunk of chunks) {
        hash.update(chunk);
        bytes += chunk.length;
        for (const byte of chunk) if (byte === NEWLINE) lines += 1;
      }
    });
  } catch {
    throw damaged(`${name} is missing or can't be read`);
  }
  return { name, sha256: hash.digest("hex"), bytes, lines };
}

/** Throws unless the file has exactly the bytes that the manifest names. */
export async function verifyFile(folder: string, file: File): Promise<void> {
  const found = await digestFile(folder, file.name);
  if (found.sha256 !== file.sha256 || found.bytes !== file.bytes || found.lines !== file.lines) {
    throw damaged(`${file.name} does not have the digest it was written with`);
  }
}

/** The lines of a file that was verified. */
export async function* readLines<S extends z.ZodType>(
  folder: string,
  name: string,
  shape: S,
): AsyncGenerator<z.output<S>> {
  const lines = createInterface({ input: createReadStream(join(folder, name)), crlfDelay: Infinity });
  for await (const text of lines) {
    const parsed = shape.safeParse(parse(text));
    if (!parsed.success) throw damaged(`${name} holds a line that is none`);
    yield parsed.data;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
