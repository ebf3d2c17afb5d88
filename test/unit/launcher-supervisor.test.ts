/** A child that is kept: a first start that fails is told, and a later end is followed by another start. */
import { expect, test } from "vitest";
import type { Child } from "../../launcher/child.ts";
import type { PlaneEvent } from "../../launcher/events.ts";
import { supervise } from "../../launcher/supervisor.ts";

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

/** A child whose launches go as `launches` says, the last of them again and again. */
function supervised(...launches: readonly ("fails" | "lasts")[]) {
  const events: PlaneEvent[] = [];
  const children: Child[] = [];
  let tries = 0;
  const part = supervise({
    name: "late",
    launch: () => {
      tries += 1;
      if (launches[Math.min(tries, launches.length) - 1] === "fails") return Promise.reject(new Error("not yet"));
      const child = lasting();
      children.push(child);
      return Promise.resolve(child);
    },
    report: (event) => events.push(event),
    changed: () => undefined,
  });
  return { part, events, tries: () => tries, children };
}

test("a first start that fails is told to whoever asked for it, and nothing is tried again", async () => {
  const { part, events, tries } = supervised("fails", "lasts");
  await expect(part.begun).rejects.toThrow("not yet");
  expect([events, tries()]).toEqual([[], 1]);
});

test("an end is followed by another start, and so is a start that fails then: a line for each, and for the return", async () => {
  const { part, events, children } = supervised("lasts", "fails", "lasts");
  await part.begun;
  children[0]?.kill();
  await expect.poll(() => events.map(({ kind }) => kind), { timeout: 10_000 }).toEqual(["died", "died", "restarted"]);
  expect(events[1]).toMatchObject({ child: "late", why: "not yet" });
  await part.stop(100);
});

test("a stop ends the tries", async () => {
  const { part, tries, children, events } = supervised("lasts", "fails");
  await part.begun;
  children[0]?.kill();
  await expect.poll(() => events.length, { timeout: 10_000 }).toBeGreaterThan(1);
  await part.stop(100);
  const tried = tries();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  expect(tries()).toBe(tried);
});
