/**
 * Permission refusals, told to whom they belong.
 *
 * The broker answers a refused publish or subscribe later and out of band (field case 25). This
 * watch reads a connection's status events once and hands each refusal to the operation that waits
 * on that subject, so that it ends as `permission-denied` and not as a timeout.
 */
import { type NatsConnection, PermissionViolationError } from "@nats-io/transport-node";

export type Denial = { readonly operation: "publish" | "subscription"; readonly subject: string };
type Listener = (denial: Denial) => void;
/** True if the refusal was its own. */
type Claim = (denial: Denial) => boolean;

export type DenialWatch = {
  /** Calls back on a refusal of exactly this subject until the returned function is called. */
  readonly watch: (operation: Denial["operation"], subject: string, listener: Listener) => () => void;
  /**
   * Asks about every refusal, for as long as the connection lives: for who has so many subjects that a watch on
   * each would cost more than the refusals that never come. Asked before the watches.
   */
  readonly claim: (claim: Claim) => void;
  /** Refusals that nobody waited for, for a diagnostic. */
  readonly onUnclaimed: (listener: Listener) => void;
};

/** Watches the status events of one connection for as long as it lives. */
export function watchDenials(nc: NatsConnection): DenialWatch {
  const waiting = new Map<string, Set<Listener>>();
  const claims = new Set<Claim>();
  const unclaimed = new Set<Listener>();
  const tell = (denial: Denial): void => {
    for (const claim of claims) if (claim(denial)) return;
    const listeners = waiting.get(keyOf(denial.operation, denial.subject));
    for (const listener of listeners ?? unclaimed) listener(denial);
  };
  const run = async (): Promise<void> => {
    for await (const status of nc.status()) {
      if (status.type !== "error" || !(status.error instanceof PermissionViolationError)) continue;
      const { operation, subject } = status.error;
      tell({ operation: operation === "publish" ? "publish" : "subscription", subject });
    }
  };
  void run();
  return {
    watch: (operation, subject, listener) => {
      const key = keyOf(operation, subject);
      const listeners = waiting.get(key) ?? new Set<Listener>();
      listeners.add(listener);
      waiting.set(key, listeners);
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0 && waiting.get(key) === listeners) waiting.delete(key);
      };
    },
    claim: (claim) => void claims.add(claim),
    onUnclaimed: (listener) => void unclaimed.add(listener),
  };
}

function keyOf(operation: string, subject: string): string {
  return `${operation} ${subject}`;
}
