/** What somebody who may ask for it can do to make a check of a space costly. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { provisionerHandlers } from "../../services/provisioner/commands.ts";
import type { SpaceContext } from "../../services/provisioner/context.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { unpaced } from "../support/unpaced.ts";

const names = spaceNames("main");
const subjects = spaceSubjects("main");
let space: TestSpace;

beforeAll(async () => {
  space = await startSpace({ delivery: false });
});
afterAll(() => space.stop());

/** A handler itself, over a connection of its own whose traffic is counted. */
async function counted<T>(
  run: (context: SpaceContext) => Promise<T>,
): Promise<{ readonly answer: T; readonly bytes: number; readonly requests: number }> {
  const store = await space.store();
  const context = {
    space: "main",
    names,
    subjects,
    store,
    writer: createWriter({ nc: store }),
    settings: ((await space.call("space", {})) as { settings: SpaceContext["settings"] }).settings,
    authority: undefined,
    serving: undefined,
    registrations: unpaced,
    purger: undefined,
    daemon: (name) => ({ owner: "sys", actor: name }),
    replicas: 1,
    now: Date.now,
    random: () => new Uint8Array(),
  } satisfies SpaceContext;
  const before = store.stats();
  const answer = await run(context);
  const after = store.stats();
  return { answer, bytes: after.inBytes - before.inBytes, requests: after.outMsgs - before.outMsgs };
}

describe("a check", () => {
  test("asked for by many at once is made once, and each of them is answered", async () => {
    for (let index = 0; index < 5; index += 1) await space.mint({ actor: `checked_${index}` });
    const ask = async (handlers: ReturnType<typeof provisionerHandlers>): Promise<unknown> =>
      handlers["check"]?.({} as never, {} as never);
    const alone = await counted((context) => ask(provisionerHandlers(context, "x")));
    const many = await counted((context) => {
      const handlers = provisionerHandlers(context, "x");
      return Promise.all(Array.from({ length: 16 }, () => ask(handlers)));
    });
    expect(many.answer).toHaveLength(16);
    expect(many.answer[15]).toMatchObject({ findings: [{ check: "member group" }] });
    expect(many.requests).toBeLessThan(alone.requests * 2);
    // The next one looks anew.
    const later = await counted(async (context) => {
      const handlers = provisionerHandlers(context, "x");
      await ask(handlers);
      return ask(handlers);
    });
    expect(later.requests).toBeGreaterThan(alone.requests * 1.5);
  });
});
