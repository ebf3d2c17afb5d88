/**
 * Where the loopback face of a space is, and the capability of this start: one 0600 file in the run
 * folder, for programs of the same person (§10).
 *
 * Invariant: the file is written whole or not at all, and anew at each start; an old capability opens
 * nothing.
 */
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import type { FaceFile } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { writePrivate } from "../../../shared/trust/folder.ts";

/** 256 random bits, as a header may carry them. */
export function newCapability(): string {
  return randomBytes(32).toString("base64url");
}

/** `{space}` in the pattern stands for the space. */
export function facePath(pattern: string, space: string): string {
  return pattern.replaceAll("{space}", space);
}

export function writeFaceFile(path: string, face: Pick<FaceFile, "url" | "capability">): void {
  writePrivate(path, JSON.stringify(face));
}

export function removeFaceFile(path: string): void {
  rmSync(path, { force: true });
}
