/** `cotal who CHANNEL`: who hears a channel, for those who only look; by real processes. */
import { afterAll, describe, expect, test, vi } from "vitest";
import { type TestPlane, endAll, eventually, matching, startPlane } from "../support/cli.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 });
afterAll(endAll);

const hears = async (plane: TestPlane, ...args: readonly string[]) =>
  (await plane.json("who", ...args)).filter(({ kind }) => kind === "hears");

describe("W8.19 who hears a channel", () => {
  test("static: an observer sees who listens and who is a member while away; an agent and the operator are told what helps", async () => {
    const plane = await startPlane("--auth", "static");
    try {
      await plane.json("mint", "--owner", "acme", "--actor", "watcher", "--profile", "observer");
      const mint = ["mint", "--owner", "acme", "--actor", "x", "--profile", "observer"];
      const none = await plane.run(...mint, "--role", "r");
      expect([none.code, none.err]).toEqual([2, matching(/takes no --role/)]);
      await eventually(
        () => plane.run("status"),
        ({ out }) => /delivery +ok/.test(out),
      );
      const alice = plane.start("tail", "--channel", "general", "--as", "alice", "--json");
      const member = async () =>
        (await hears(plane, "general", "--as", "watcher")).find(({ id }) => String(id).endsWith(".alice"));
      const whole = { live: ["general"], durable: ["general"], omitted: 0 };
      const here = await eventually(member, (one) => JSON.stringify(one?.["durable"]) === '["general"]', 60_000);
      expect(here).toMatchObject(whole);
      alice.process.kill("SIGTERM");
      await alice.ended;
      const away = await eventually(member, (one) => JSON.stringify(one?.["live"]) === "[]", 60_000);
      expect(away).toMatchObject({ ...whole, live: [] });
      const seen = await plane.run("who", "#general", "--as", "watcher");
      expect(seen.out).toMatch(/alice +durable +#general +u_/);
      expect(seen.err).toMatch(/as seen \d+ s ago$/m);
      expect((await plane.run("who", "nowhere", "--as", "watcher")).out).toMatch(/nobody hears #nowhere/);
      for (const as of [["--as", "alice"], []]) {
        const refused = await plane.run("who", "general", ...as);
        expect([refused.code, refused.err]).toEqual([1, matching(/observers and admins alone[^]*--profile observer/)]);
      }
    } finally {
      await plane.stop();
    }
  });

  test("where people sign in: with the scope admin, and not without it", async () => {
    const plane = await startPlane();
    try {
      await eventually(
        () => plane.run("status"),
        ({ out }) => /delivery +ok/.test(out),
      );
      const refused = await plane.run("who", "general");
      expect([refused.code, refused.err]).toEqual([1, matching(/admin/)]);
      await plane.json("actor", "grant", "boss", "--subscribe", "general", "--capability", "admin");
      const tail = plane.start("tail", "--channel", "general", "--as", "bob", "--json");
      const bob = async () =>
        (await hears(plane, "general", "--as", "boss")).find(({ id }) => String(id).endsWith(".bob"));
      expect(await eventually(bob, (member) => member !== undefined, 60_000)).toMatchObject({ live: ["general"] });
      tail.process.kill("SIGTERM");
      await tail.ended;
    } finally {
      await plane.stop();
    }
  });
});
