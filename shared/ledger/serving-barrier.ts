/**
 * When is nothing left of an instance's predecessor (§13.1, takeover)? With static credentials.
 *
 * A JWT can be refused by the broker before its end only through its account's claims, which no daemon may
 * sign. So a serve credential lives for minutes, and the barrier waits for its end, which every server of a
 * cluster enforces by itself; then it asks who is connected. Both are facts; where one can't be had the
 * takeover is refused, and a new instance is free to register meanwhile.
 */
import { CotalError, ErrorCode, Outcome, RETRY_AFTER } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import type { Connected } from "../broker/still-connected.ts";
import type { ServingParts } from "./serving-type.ts";

export type BarrierParts = {
  readonly connectionsOf: (p: Principal) => Promise<Connected>;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

/** How far the clocks of the servers may be behind this one, in milliseconds. */
const CLOCKS_APART_MS = 5_000;

/** Whose credential is over is put off by its server within moments. */
const STILL_THERE_MS = 1_000;

export function expiryBarrier({ connectionsOf, now }: BarrierParts): ServingParts["barrier"] {
  return async (holder, revoked) => {
    if (revoked.some(({ exp }) => exp === 0)) {
      throw new CotalError(ErrorCode.FailedPrecondition, "a credential of the predecessor has no end", {
        outcome: Outcome.NotExecuted,
        next: "register a new instance",
      });
    }
    const ends = Math.max(0, ...revoked.map(({ exp }) => exp * 1000)) + CLOCKS_APART_MS;
    if (revoked.length > 0 && ends > now()) {
      throw new CotalError(
        ErrorCode.FailedPrecondition,
        `the predecessor's credential can be used until ${new Date(ends).toISOString()}`,
        {
          outcome: Outcome.NotExecuted,
          next: "ask again then; or register a new instance, which need not wait",
          details: [{ kind: RETRY_AFTER, ms: ends - now() }],
        },
      );
    }
    const found = await connectionsOf(holder);
    if (found.kind === "none") return;
    const [why, next] =
      found.kind === "unknown"
        ? [`whether ${dotForm(holder)} is still connected is not known: ${found.why}`, found.next]
        : [`${dotForm(holder)} is still connected`, "ask again in a moment"];
    const code = found.kind === "unknown" ? found.code : ErrorCode.FailedPrecondition;
    const details = found.kind === "unknown" ? [] : [{ kind: RETRY_AFTER, ms: STILL_THERE_MS }];
    throw new CotalError(code, why, { outcome: Outcome.NotExecuted, next, details });
  };
}
