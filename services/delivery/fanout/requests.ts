/**
 * Changes of membership that somebody asks for, until the loop of their group takes them (`delivery.md` 4).
 *
 * Invariants
 * 1. Bounded by what the endpoint serves at once: so each ends, and gives its place back, also where its caller has
 *    given up waiting.
 * 2. A request is judged by a look at the stores that began after it came, and by none before: whoever asks for what
 *    was stored a moment ago is not refused by what was read before that.
 */
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import type { Membership } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Lifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { type ReadingBack, createReadingBack } from "./reading-back.ts";

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
  /** What joins of this loop may still read back. */
  readonly readingBack: ReadingBack;
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
        if (signal.aborted) return request.refuse(gaveUp());
        signal.addEventListener("abort", () => request.refuse(gaveUp()), { once: true });
        onAsked();
      }),
    waiting: () => [...waiting].filter((request) => judged.has(request)),
    readingBack: createReadingBack(() => performance.now()),
    refuseAll: (error) => {
      for (const request of waiting) request.refuse(error);
    },
  };
}

/** What was begun goes on: whether the row is changed is told by the list of memberships. */
function gaveUp(): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, "the deadline passed before the change was stored", {
    next: "ask for the list of memberships, then for the change again if it is not there",
  });
}
