/** What a first start that fails comes to: an error for whoever waits for it, or another try. */
import { expect, test } from "vitest";
import type { Child } from "../../launcher/child.ts";
import type { PlaneEvent } from "../../launcher/events.ts";
import { type FirstStart, supervise } from "../../launcher/supervisor.ts";

/** A child that stays until it is ended. */
function lasting(): Child {
  let leave = (): void => undefined;
  const ended = new Promise<{ code: number; signal: null }>((resolve) => {
    leave = () => resolve({ code: 0, signal: null });
  });
  return {
    identity: { pid: 1, start: "now", boot: "" },
    ready: Promise.resolve(),
    ended,
    hasEnded: () => false,
    end: () => Promise.resolve(leave()),
    kill: leave,
  };
}

function failing(first: FirstStart | undefined) {
  const events: PlaneEvent[] = [];
  let tries = 0;
  const part = supervise({
    name: "late",
    ...(first === undefined ? {} : { first }),
    launch: () => {
      tries += 1;
      return tries === 1 ? Promise.reject(new Error("not yet")) : Promise.resolve(lasting());
    },
    report: (event) => events.push(event),
    changed: () => undefined,
  });
  return { part, events, tries: () => tries };
}

test("it is told, and nothing is tried again, where somebody waits for it", async () => {
  const { part, events, tries } = failing(undefined);
  await expect(part.begun).rejects.toThrow("not yet");
  expect([events, tries()]).toEqual([[], 1]);
});

test("where nobody does it is tried again, with a line for the failure and one for the return", async () => {
  const { part, events } = failing("again");
  expect(part.isStarting()).toBe(true);
  await part.begun;
  // A start that has failed is no start that is awaited any more.
  expect(part.isStarting()).toBe(false);
  await expect.poll(() => part.child(), { timeout: 10_000 }).toBeDefined();
  await expect.poll(() => events.map(({ kind }) => kind), { timeout: 5000 }).toEqual(["died", "restarted"]);
  expect(events[0]).toMatchObject({ child: "late", why: "not yet" });
  await part.stop(100);
});

test("a stop ends the tries", async () => {
  const { part, tries } = failing("again");
  await part.begun;
  await part.stop(100);
  await new Promise((resolve) => setTimeout(resolve, 600));
  expect(tries()).toBe(1);
});
