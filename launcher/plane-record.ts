/**
 * The record of the running plane: who runs it, where it listens, which processes are its own.
 *
 * Written by the launcher alone, each time something changes; read by `down`, `status`, `doctor`,
 * and by every command that wants the server's address. Invariants: a write is whole or not at all;
 * a record proves nothing by itself, the processes it names are looked at (process-identity.ts).
 */
import { rmSync } from "node:fs";
import { z } from "zod";
import { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { writePrivate } from "../shared/trust/folder.ts";
import { ProcessIdentity, isAlive } from "./process-identity.ts";
import { parseJson, planePaths, readIfThere } from "./state-folder.ts";

export const ChildRecord = z.looseObject({
  name: z.string(),
  process: ProcessIdentity,
  /** Port of its `/readyz`, once it listens. */
  health: z.number().int().optional(),
  /** How often it was started again. */
  restarts: z.number().int(),
});
export type ChildRecord = z.infer<typeof ChildRecord>;

export const PlaneRecord = z.looseObject({
  v: z.literal(1),
  phase: z.enum(["starting", "ready", "stopping"]),
  launcher: ProcessIdentity,
  server: z.string(),
  port: z.number().int(),
  auth: AuthMode,
  space: z.string(),
  brokerVersion: z.string(),
  startedAt: z.string(),
  children: z.array(ChildRecord),
});
export type PlaneRecord = z.infer<typeof PlaneRecord>;

/** The record as it stands; `undefined` if there is none, or it does not parse. */
export function readPlane(state: string): PlaneRecord | undefined {
  const text = readIfThere(planePaths(state).record);
  const parsed = text === undefined ? undefined : PlaneRecord.safeParse(parseJson(text));
  return parsed?.success === true ? parsed.data : undefined;
}

export function writePlane(state: string, record: PlaneRecord): void {
  writePrivate(planePaths(state).record, JSON.stringify(record));
}

export function removePlane(state: string): void {
  rmSync(planePaths(state).record, { force: true });
}

/** The record of a plane whose launcher runs now. */
export function livePlane(state: string): PlaneRecord | undefined {
  const record = readPlane(state);
  return record !== undefined && isAlive(record.launcher) ? record : undefined;
}

/** Children of the record that still run. */
export function liveChildren(record: PlaneRecord): ChildRecord[] {
  return record.children.filter((child) => isAlive(child.process));
}
