/**
 * Keeps the plane's record true while the plane runs: each start and end of a child writes it.
 *
 * Invariants: a child is in the record from the moment it has a pid, ready or not, so that none is
 * ever unreferenced (field case 34); after `end` nothing is written.
 */
import { type PlaneRecord, removePlane, writePlane } from "./plane-record.ts";
import type { Supervised } from "./supervisor.ts";

export type Recorder = {
  readonly begin: (record: PlaneRecord) => void;
  readonly phase: (phase: PlaneRecord["phase"]) => void;
  /** Where a child's health is served; `undefined` while a new run has not told. */
  readonly health: (child: string, port: number | undefined) => void;
  readonly write: () => void;
  /** Removes the record. */
  readonly end: () => void;
};

export function createRecorder(state: string, parts: readonly Supervised[]): Recorder {
  let record: PlaneRecord | undefined;
  const ports = new Map<string, number>();
  const children = (): PlaneRecord["children"] =>
    parts.flatMap(({ name, child, restarts }) => {
      const run = child();
      const health = ports.get(name);
      if (run === undefined) return [];
      return [
        {
          name,
          process: run.identity,
          restarts: restarts(),
          ...(health === undefined ? {} : { health }),
        },
      ];
    });
  const write = (): void => {
    if (record !== undefined) writePlane(state, { ...record, children: children() });
  };
  return {
    begin: (first) => {
      record = first;
      write();
    },
    phase: (phase) => {
      if (record !== undefined) record = { ...record, phase };
      write();
    },
    health: (child, port) => {
      if (port === undefined) ports.delete(child);
      else ports.set(child, port);
      write();
    },
    write,
    end: () => {
      record = undefined;
      removePlane(state);
    },
  };
}
