/**
 * Whether requests to a role would wait for the delivery plane, asked beside each `ask` (§6.1).
 *
 * Invariants: it is never said on silence, for that is no health state; a plane that was just bound is not asked
 * again for a moment; an `ask` waits for this only a little.
 */
import type { LivenessGrade } from "../protocol/chat/liveness.ts";

const BOUND_FOR_MS = 5000;
const PATIENCE_MS = 500;

/** `ask` resolves to true where the plane said, or the broker, that it does not serve. */
export function createPlaneWait(probe: () => Promise<LivenessGrade>, now: () => number): () => Promise<boolean> {
  let boundAt = Number.NEGATIVE_INFINITY;
  return async () => {
    if (now() - boundAt < BOUND_FOR_MS) return false;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), PATIENCE_MS);
    });
    const grade = await Promise.race([probe(), late]);
    clearTimeout(timer);
    if (grade?.responder === "bound") boundAt = now();
    return grade?.responder === "unbound" || grade?.responder === "stale";
  };
}
