/** What an `ask` says of the delivery plane: only what somebody said, and without being held up by silence. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createPlaneWait } from "../../shared/client/served-plane.ts";
import type { LivenessGrade, ResponderState } from "../../shared/protocol/chat/liveness.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each<[ResponderState, boolean, number]>([
  ["bound", false, 1],
  ["unknown", false, 1],
  ["unbound", true, 2],
  ["stale", true, 2],
])("W61.09 %s: it waits is said %s, and two asks at once cost %s questions", async (responder, waits, questions) => {
  let asked = 0;
  const ask = createPlaneWait(() => {
    asked += 1;
    return Promise.resolve({ responder });
  }, Date.now);
  expect([await ask(), await ask(), asked]).toEqual([waits, waits, questions]);
  await vi.advanceTimersByTimeAsync(5000);
  expect([await ask(), asked]).toEqual([waits, questions + 1]);
});

test("W61.09 silence says nothing, and holds up one ask for half a second and no other", async () => {
  const ask = createPlaneWait(() => new Promise<LivenessGrade>(() => undefined), Date.now);
  const first = ask();
  await vi.advanceTimersByTimeAsync(500);
  expect(await first).toBe(false);
  expect(await ask()).toBe(false);
});
