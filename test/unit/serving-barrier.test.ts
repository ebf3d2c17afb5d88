/** When nothing is left of an instance's predecessor (§13.1): its credentials are over, and nobody is connected. */
import { describe, expect, test } from "vitest";
import type { Connected } from "../../shared/broker/still-connected.ts";
import { expiryBarrier } from "../../shared/ledger/serving-barrier.ts";
import { ErrorCode, RETRY_AFTER } from "../../shared/protocol/base/errors.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import type { EndpointCredentialRow } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { NOW_MS, OWNER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { ENDPOINT, userKey } from "../support/serving-parts.ts";

const instanceId = "i".repeat(26);
const holder = principal(OWNER, `svc_${instanceId}`);
const END = 1_800_000_600;
const NONE: Connected = { kind: "none" };

const row = (exp: number, letter = "A"): EndpointCredentialRow => ({
  credentialId: userKey(letter),
  endpoint: ENDPOINT,
  holderPrincipal: `${OWNER}.svc_${instanceId}`,
  lifecycleUid: instanceId,
  processEpoch: 1,
  sourceChain: ["root"],
  state: "revoked",
  exp,
});

/** A barrier at this moment, and whom it asked about. */
function barrier(nowMs: number, connected: Connected = NONE) {
  const asked: unknown[] = [];
  const ask = expiryBarrier({
    now: () => nowMs,
    connectionsOf: (p) => {
      asked.push(p);
      return Promise.resolve(connected);
    },
  });
  return { asked, ask };
}

describe("W131.07 the end of a predecessor", () => {
  test("W131.07 before the last end of its credentials, and a margin, it is refused, and says how long", async () => {
    for (const [nowMs, ms] of [
      [NOW_MS, 605_000],
      [END * 1000, 5_000],
      [END * 1000 + 4_999, 1],
    ] as const) {
      const { ask, asked } = barrier(nowMs);
      const error = await failure(ask(holder, [row(END - 500, "A"), row(END, "B"), row(END - 1, "C")]));
      expect([error.code, error.outcome, error.details]).toEqual([
        ErrorCode.FailedPrecondition,
        "not-executed",
        [{ kind: RETRY_AFTER, ms }],
      ]);
      expect(error.message).toContain(new Date(END * 1000 + 5000).toISOString());
      expect(error.next).toContain("new instance");
      // Who is connected says nothing while a credential can still connect.
      expect(asked).toEqual([]);
    }
  });

  test("W131.07 after it, nobody connected is the end, and it is the instance that was asked about", async () => {
    const { ask, asked } = barrier(END * 1000 + 5_000);
    await ask(holder, [row(END), row(END - 5)]);
    expect(asked).toEqual([holder]);
  });

  test("W131.07 an instance that never had a credential waits for none, and is looked for all the same", async () => {
    const { ask, asked } = barrier(NOW_MS);
    await ask(holder, []);
    expect(asked).toEqual([holder]);
    const error = await failure(barrier(NOW_MS, { kind: "some", count: 1 }).ask(holder, []));
    expect(error.code).toBe(ErrorCode.FailedPrecondition);
  });

  test("W131.07 a connection that is still there refuses, and says when to ask again", async () => {
    const error = await failure(barrier(END * 2000, { kind: "some", count: 2 }).ask(holder, [row(END)]));
    expect([error.code, error.outcome]).toEqual([ErrorCode.FailedPrecondition, "not-executed"]);
    expect(error.details).toEqual([{ kind: RETRY_AFTER, ms: 1000 }]);
  });

  test("W131.07 what is not known is never read as nobody", async () => {
    for (const code of [ErrorCode.Unavailable, ErrorCode.Unimplemented, ErrorCode.FailedPrecondition]) {
      const connected: Connected = { kind: "unknown", code, why: "a cluster", next: "look" };
      const error = await failure(barrier(END * 2000, connected).ask(holder, [row(END)]));
      expect([error.code, error.outcome, error.next]).toEqual([code, "not-executed", "look"]);
      expect(error.message).toContain("a cluster");
    }
  });

  test("W131.07 a sweep that fails refuses", async () => {
    const ask = expiryBarrier({ now: () => END * 2000, connectionsOf: () => Promise.reject(new Error("broken")) });
    await expect(ask(holder, [row(END)])).rejects.toThrow("broken");
  });

  test("W131.07 a credential without an end is never over", async () => {
    const { ask, asked } = barrier(END * 2000);
    const error = await failure(ask(holder, [row(END), row(0, "B")]));
    expect([error.code, error.details, asked]).toEqual([ErrorCode.FailedPrecondition, [], []]);
  });
});
