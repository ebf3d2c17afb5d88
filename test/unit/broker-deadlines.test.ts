/** Deadlines of many requests on one timer: nobody early, nobody forgotten, whatever comes and goes between. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Deadlines, createDeadlines } from "../../shared/broker/deadlines.ts";

let deadlines: Deadlines;
let late: string[];
const add = (name: string, ms: number): (() => void) => deadlines.add(ms, () => void late.push(name));

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  deadlines = createDeadlines();
  late = [];
});
afterEach(() => {
  vi.useRealTimers();
});

test("PD.01: each is told at its own deadline and not before, in whatever order they were asked", () => {
  add("long", 300);
  add("short", 100);
  add("middle", 200);
  vi.advanceTimersByTime(99);
  expect(late).toEqual([]);
  vi.advanceTimersByTime(2);
  expect(late).toEqual(["short"]);
  vi.advanceTimersByTime(100);
  expect(late).toEqual(["short", "middle"]);
  vi.advanceTimersByTime(100);
  expect(late).toEqual(["short", "middle", "long"]);
});

test("who is answered is not told, and the one who waits beside it is", () => {
  const answered = add("answered", 100);
  vi.advanceTimersByTime(50);
  add("waits", 100);
  answered();
  vi.advanceTimersByTime(60);
  expect(late).toEqual([]);
  vi.advanceTimersByTime(50);
  expect(late).toEqual(["waits"]);
});

test("two at one moment: the first may end the second, and may begin another", () => {
  const ends: (() => void)[] = [];
  deadlines.add(100, () => {
    late.push("first");
    ends[0]?.();
    add("another", 50);
  });
  ends.push(add("second", 100));
  vi.advanceTimersByTime(101);
  expect(late).toEqual(["first"]);
  vi.advanceTimersByTime(51);
  expect(late).toEqual(["first", "another"]);
});

test("many take one timer, and none is left once the last is over", () => {
  const ends = Array.from({ length: 1000 }, (_, n) => add(String(n), 1000 + n));
  expect(vi.getTimerCount()).toBe(1);
  for (const end of ends) end();
  vi.advanceTimersByTime(1001);
  expect(vi.getTimerCount()).toBe(0);
  expect(late).toEqual([]);
});
