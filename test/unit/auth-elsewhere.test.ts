/** How an instance without the plane asks for it, and who may not hold it: faults that no real broker gives on demand. */
import { expect, test } from "vitest";
import { planeOver } from "../../services/auth/plane/elsewhere.ts";
import { demandMissed } from "../../services/auth/plane/liveness.ts";
import { noPlane, refusal } from "../../services/auth/plane/parts.ts";
import type { Call } from "../../shared/client/caller.ts";
import { nobodyThere } from "../../shared/client/rail-errors.ts";
import { type CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { OWNER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
const agent = { by: "agent" } as const;

/** Answers with these, one after another, and then with success; counts what it was asked. */
function plane(...thrown: readonly CotalError[]) {
  let asked = 0;
  const call = (() => {
    const error = thrown[asked];
    asked += 1;
    return error === undefined ? Promise.resolve({ data: {} }) : Promise.reject(error);
  }) as unknown as Call;
  return { elsewhere: planeOver(call), asked: () => asked };
}

test("PI.01 while nobody holds the plane it is asked again: where nobody serves it, and where the one that did has lost it", async () => {
  const { elsewhere, asked } = plane(nobodyThere("auth", "auth enrol"), noPlane());
  await elsewhere.begin(alice, agent);
  expect(asked()).toBe(3);
});

test("what the holder refuses is told at once", async () => {
  const refused = refusal(ErrorCode.Unavailable, "its name is not free yet", "ask again");
  const { elsewhere, asked } = plane(refused);
  expect(await failure(elsewhere.begin(alice, agent))).toBe(refused);
  expect(asked()).toBe(1);
});

test("so many wait for the plane, and the next is told at once", async () => {
  const nobody = nobodyThere("auth", "auth enrol");
  let isHeld = false;
  let asked = 0;
  const call = (() => {
    asked += 1;
    return isHeld ? Promise.resolve({ data: {} }) : Promise.reject(nobody);
  }) as unknown as Call;
  const elsewhere = planeOver(call);
  const waiting = Array.from({ length: 32 }, () => elsewhere.begin(alice, agent));
  await expect.poll(() => asked).toBeGreaterThanOrEqual(32);
  expect(await failure(elsewhere.begin(alice, agent))).toBe(nobody);
  isHeld = true;
  await Promise.all(waiting);
});

/** A connection over which nobody answers. */
const silent = (cluster: string | undefined) =>
  ({
    nc: { info: { cluster }, subscribe: () => ({ unsubscribe: () => undefined }), publish: () => undefined },
    inboxPrefix: "_INBOX_x",
  }) as unknown as Parameters<typeof demandMissed>[0];

test("PI.01 a server of a cluster that does not say whether it would be missed holds no plane; one that is the whole broker does", async () => {
  expect(await failure(demandMissed(silent("c"), [{ serverId: "N1" }, { serverId: "N1" }]))).toMatchObject({
    code: ErrorCode.Unavailable,
    next: expect.stringContaining("start its servers again") as unknown,
  });
  await demandMissed(silent(undefined), [{ serverId: "N1" }]);
});
