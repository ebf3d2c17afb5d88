/**
 * The folder of a backup: begun empty, sealed by its manifest, verified before anything is made of it.
 *
 * Invariant: the manifest is the last thing written, by a rename. A process that dies half way leaves a folder
 * that every reader refuses as torn; nothing has to clean up after it.
 */
import { mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { writePrivate } from "../trust/folder.ts";
import { DEV_PERSON, MANIFEST, type Manifest, OWNER_SECRET, damaged, parseManifest } from "./format.ts";
import { verifyFile } from "./lines.ts";

/** Makes the folder; refuses one that holds anything. */
export function beginFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const held = readdirSync(folder);
  if (held.length === 0) return;
  const why = held.includes(MANIFEST) ? "holds a backup already" : "is not empty";
  throw new CotalError(ErrorCode.AlreadyExists, `${folder} ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "name a new folder; one without backup.json is left of a backup that did not end, and can be removed",
  });
}

/** Removes what a run has written that did not end: the folder is as it was found. */
export function discardFolder(folder: string): void {
  for (const name of readdirSync(folder)) {
    if (name === OWNER_SECRET || name === DEV_PERSON || name.endsWith(".jsonl"))
      rmSync(join(folder, name), { force: true });
  }
}

/** The last step: from now on it is a backup. */
export async function sealFolder(folder: string, manifest: Manifest): Promise<void> {
  writePrivate(join(folder, MANIFEST), JSON.stringify(manifest, undefined, 2));
  const handle = await open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** What the manifest says, nothing of the files looked at. */
export function readManifest(folder: string): Manifest {
  let text: string;
  try {
    text = readFileSync(join(folder, MANIFEST), "utf8");
  } catch {
    throw damaged(`${folder} has no ${MANIFEST}: no backup was finished there`);
  }
  return parseManifest(text);
}

/** Reads the manifest, and every file against its digest. */
export async function verifyFolder(folder: string): Promise<Manifest> {
  const manifest = readManifest(folder);
  for (const file of manifest.files) await verifyFile(folder, file);
  return manifest;
}
