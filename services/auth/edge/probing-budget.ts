/**
 * How often one address may ask without proving to be anybody (§10), over all doors of one space.
 *
 * Invariants
 * 1. Only refusals of nobody count: who has proved who they are is told the reason, however often.
 * 2. A full budget changes what a refusal says and nothing else. A good proof is served all the same, or
 *    one client with a dead token would lock out everybody who shares its address (field case 20).
 */
import { type Rate, createBuckets } from "../../../shared/serve/buckets.ts";
import { hostKey } from "./connect-limits.ts";
import type { Peer } from "./http.ts";
import { type Answer, tooMany } from "./refusals.ts";

/** The answer that leaves. `known`: the request came with a proof that holds. */
export type ProbingBudget = (answer: Answer, peer: Peer, known: boolean) => Answer;

export const DEFAULT_PROBES: Rate = { burst: 60, perMinute: 60 };
const MAX_PEERS = 10_000;

/** Malformed, or no proof. */
const PROBES: ReadonlySet<number> = new Set([400, 401]);

/** `clock` in monotonic milliseconds. */
export function createProbingBudget(rate: Rate, clock: () => number): ProbingBudget {
  const probes = createBuckets(rate, MAX_PEERS, clock);
  return (answer, { address }, known) => {
    if (known || !PROBES.has(answer.status)) return answer;
    const key = hostKey(address);
    const wait = probes.wait(key);
    if (wait > 0) return tooMany(wait, "refused-too-often");
    probes.take(key);
    return answer;
  };
}
