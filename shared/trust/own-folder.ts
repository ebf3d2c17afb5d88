/**
 * A daemon's own files for each space it serves, under a pattern that names the space.
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only. Invariant: a
 * file that is wrong is named, and never quoted.
 */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { LIFECYCLE_UID, SPACE_TOKEN } from "../protocol/base/grammar.ts";

const PLACEHOLDER = "{space}";

/** Whose files they are, and the setting that says where. */
export type FolderOwner = { readonly daemon: string; readonly setting: string };

export type OwnFolder = {
  readonly path: string;
  /** Throws `failed-precondition` that names the file. */
  readonly read: <T>(name: string, parse: (content: string) => T) => T;
  /** The same of a file that need not be there: none then. */
  readonly readIf: <T>(name: string, parse: (content: string) => T) => readonly T[];
};

export function ownFolder(pattern: string, space: string, owner: FolderOwner): OwnFolder {
  const path = pattern.replace(PLACEHOLDER, space);
  const read: OwnFolder["read"] = (name, parse) => {
    const file = join(path, name);
    const content = contentOf(file, owner);
    try {
      return parse(content);
    } catch {
      // Without the cause: it may quote the file.
      throw broken(file, "does not hold what it should", owner);
    }
  };
  return {
    path,
    read,
    readIf: (name, parse) => (existsSync(join(path, name)) ? [read(name, parse)] : []),
  };
}

/** The spaces whose folder has its last file: whole folders. The parent appears with the first space. */
export function wholeFolders(pattern: string, lastFile: string): string[] {
  const [lead = "", ...tail] = pattern.split(PLACEHOLDER);
  if (tail.length === 0) return [];
  const parent = lead.endsWith("/") ? lead : dirname(lead);
  let names: string[];
  try {
    names = readdirSync(parent);
  } catch {
    return [];
  }
  return names.filter(
    (name) => SPACE_TOKEN.test(name) && existsSync(join(pattern.replace(PLACEHOLDER, name), lastFile)),
  );
}

export function lawfulUid(content: string): string {
  if (!LIFECYCLE_UID.test(content)) throw new TypeError("malformed");
  return content;
}

/** 32 bytes as hex. Anything shorter would name every owner by a key that can be guessed. */
export function secret(content: string): Buffer {
  if (!/^[0-9a-f]{64}$/.test(content)) throw new TypeError("malformed");
  return Buffer.from(content, "hex");
}

function contentOf(file: string, owner: FolderOwner): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    throw broken(file, "can't be read", owner);
  }
}

function broken(file: string, why: string, { daemon, setting }: FolderOwner): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ${daemon}'s file ${file} ${why}`, {
    outcome: Outcome.NotExecuted,
    next: `run cotal up or cotal space add, which write these files; check ${setting}`,
  });
}
