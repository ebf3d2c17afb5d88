/**
 * Where the loopback face of a space is, and the capability of this start: one 0600 file in the run
 * folder, for programs of the same person (§10).
 *
 * Invariants
 * 1. The file is written whole or not at all, and anew at each start; an old capability opens nothing.
 * 2. Of several processes at one place the last one that came is found there, also when another one ends.
 */
import { randomBytes } from "node:crypto";
import { readFileSync, rmSync } from "node:fs";
import type { FaceFile } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { writePrivateBeside } from "../../../shared/trust/folder.ts";

/** 256 random bits, as a header may carry them. */
export function newCapability(): string {
  return randomBytes(32).toString("base64url");
}

/** `{space}` in the pattern stands for the space. */
export function facePath(pattern: string, space: string): string {
  return pattern.replaceAll("{space}", space);
}

export function writeFaceFile(path: string, face: Pick<FaceFile, "url" | "capability">): void {
  writePrivateBeside(path, JSON.stringify(face));
}

/** Unless another process has written its own there since: its programs must still find it. */
export function removeFaceFile(path: string, { capability }: Pick<FaceFile, "capability">): void {
  if (capabilityIn(path) === capability) rmSync(path, { force: true });
}

function capabilityIn(path: string): unknown {
  try {
    const found: unknown = JSON.parse(readFileSync(path, "utf8"));
    return typeof found === "object" && found !== null ? Reflect.get(found, "capability") : undefined;
  } catch {
    return undefined;
  }
}
