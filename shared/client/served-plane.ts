/**
 * Whether requests to a role would wait for the delivery plane, asked beside each `ask` (§6.1).
 *
 * Invariants
 * 1. It is never said on silence: that is no health state.
 * 2. An `ask` waits for this only a little, and where nobody has answered just now, not at all.
 */
import type { LivenessGrade } from "../protocol/chat/liveness.ts";

/** How long a plane that was bound, or that was silent, is not asked again. */
const KEPT_MS = 5000;
const PATIENCE_MS = 500;

/** It resolves to true where the plane said, or the broker, that it does not serve. */
export function createPlaneWait(probe: () => Promise<LivenessGrade>, now: () => number): () => Promise<boolean> {
  let quietUntil = Number.NEGATIVE_INFINITY;
  return async () => {
    if (now() < quietUntil) return false;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<LivenessGrade>((resolve) => {
      timer = setTimeout(() => resolve({ responder: "unknown" }), PATIENCE_MS);
    });
    const { responder } = await Promise.race([probe(), late]);
    clearTimeout(timer);
    if (responder === "unbound" || responder === "stale") return true;
    quietUntil = now() + KEPT_MS;
    return false;
  };
}
