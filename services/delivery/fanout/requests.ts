/**
 * Changes of membership that somebody asks for, until the loop of their group takes them (`delivery.md` 4).
 *
 * Invariants
 * 1. Bounded by what the endpoint serves at once; whoever has given up waiting is taken out.
 * 2. A request is judged by a look at the stores that began after it came, and by none before: whoever asks for what
 *    was stored a moment ago is not refused by what was read before that.
 */
import type { CotalError } from "../../../shared/protocol/base/errors.ts";
import type { Membership } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Lifecycle } from "../../../shared/protocol/ledger/member-rows.ts";

export type Change =
  | { readonly kind: "join"; readonly lifecycle: Lifecycle; readonly pattern: string; readonly cursor: number }
  | { readonly kind: "leave"; readonly lifecycle: Lifecycle; readonly pattern: string };

export type Request = {
  readonly change: Change;
  readonly done: (membership: Membership | undefined) => void;
  readonly refuse: (error: CotalError) => void;
};

export type Requests = {
  readonly ask: (change: Change, signal: AbortSignal) => Promise<Membership | undefined>;
  /** Looks at the stores; what was asked before that began may be judged when it has ended. */
  readonly before: (look: () => Promise<void>) => Promise<void>;
  /** Those that may be judged. */
  readonly waiting: () => readonly Request[];
  readonly refuseAll: (error: CotalError) => void;
};

export function createRequests(onAsked: () => void): Requests {
  const waiting = new Set<Request>();
  const judged = new WeakSet<Request>();
  return {
    before: async (look) => {
      const came = [...waiting];
      await look();
      for (const request of came) judged.add(request);
    },
    ask: (change, signal) =>
      new Promise((resolve, reject) => {
        const settle = (run: () => void): void => {
          if (waiting.delete(request)) run();
        };
        const request: Request = {
          change,
          done: (membership) => settle(() => resolve(membership)),
          refuse: (error) => settle(() => reject(error)),
        };
        waiting.add(request);
        // The server answers a caller whose time is up; here nobody waits any more.
        signal.addEventListener("abort", () => waiting.delete(request), { once: true });
        onAsked();
      }),
    waiting: () => [...waiting].filter((request) => judged.has(request)),
    refuseAll: (error) => {
      for (const request of waiting) request.refuse(error);
    },
  };
}
