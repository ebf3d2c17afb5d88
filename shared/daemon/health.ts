/**
 * What a daemon knows about its own health: a set of named checks, each kept by its owner.
 *
 * One check per connection, lease, loop: a summary would hide the one that has no keeper. Owners push
 * what they know, so that asking is instant and can't hang on what is broken.
 *
 * Invariants
 * 1. A check fails until its owner says otherwise: "nothing known yet" is not "fine".
 * 2. Ready means that every check is ok.
 * 3. A failing check says what is wrong and what to do, and no secret (`redact.ts`).
 */
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { safeText } from "./redact.ts";

export type CheckReport = {
  readonly name: string;
  readonly ok: boolean;
  readonly detail: string;
  /** What the reader can do; empty while the check is ok. */
  readonly next: string;
};

export type HealthReport = { readonly status: "ok" | "failing"; readonly checks: readonly CheckReport[] };

/** The owner's handle of one check. */
export type Check = {
  readonly ok: (detail?: string) => void;
  readonly fail: (detail: string, next: string) => void;
  /** What was checked exists no more, and nobody misses it. */
  readonly remove: () => void;
};

export type HealthListener = (report: CheckReport | { readonly name: string; readonly removed: true }) => void;

export type Health = {
  /** Registers a check: `connection:front`, `lease:fanout.3`. A name has one owner at a time. */
  readonly check: (name: string) => Check;
  readonly report: () => HealthReport;
  /** Hears of each check that changes. */
  readonly onChange: (listener: HealthListener) => void;
};

/** Wide enough for every connection of a hundred spaces; a bound all the same. */
const MAX_CHECKS = 1024;
const MAX_TEXT = 300;
const CHECK_NAME = /^[a-z][A-Za-z0-9_.:-]{0,63}$/;

export function createHealth(): Health {
  const checks = new Map<string, CheckReport>();
  const listeners: HealthListener[] = [];

  function tell(change: Parameters<HealthListener>[0]): void {
    for (const listener of listeners) listener(change);
  }

  function put(report: CheckReport): void {
    checks.set(report.name, report);
    tell(report);
  }

  return {
    check: (name) => {
      if (!CHECK_NAME.test(name)) throw new CotalError(ErrorCode.Internal, `${JSON.stringify(name)} names no check`);
      if (checks.has(name)) throw new CotalError(ErrorCode.AlreadyExists, `the check ${name} has an owner already`);
      if (checks.size >= MAX_CHECKS) {
        throw new CotalError(ErrorCode.ResourceExhausted, `there are ${MAX_CHECKS} health checks already`, {
          next: "serve fewer spaces in this process",
        });
      }
      let removed = false;
      const set = (report: CheckReport): void => {
        // A late word of an owner that gave its check up is no news about its successor's.
        if (!removed) put(report);
      };
      set({ name, ok: false, detail: "nothing is known yet", next: "wait; this check has just begun" });
      return {
        ok: (detail = "") => set({ name, ok: true, detail: safeText(detail, MAX_TEXT), next: "" }),
        fail: (detail, next) =>
          set({ name, ok: false, detail: safeText(detail, MAX_TEXT), next: safeText(next, MAX_TEXT) }),
        remove: () => {
          if (removed) return;
          removed = true;
          checks.delete(name);
          tell({ name, removed: true });
        },
      };
    },
    report: () => {
      const all = [...checks.values()];
      return { status: all.every(({ ok }) => ok) ? "ok" : "failing", checks: all };
    },
    onChange: (listener) => {
      listeners.push(listener);
    },
  };
}
