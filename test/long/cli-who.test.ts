/** `cotal who CHANNEL`: who hears a channel, for those who only look; by real processes. */
import { afterAll, describe, expect, test, vi } from "vitest";
import { type TestPlane, endAll, eventually, matching, startPlane } from "../support/cli.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 });
afterAll(endAll);

const hears = async (plane: TestPlane, ...args: readonly string[]) =>
  (await plane.json("who", ...args)).filter(({ kind }) => kind === "hears");

describe("W8.19 W4.08 who hears a channel, and whom only a mention reaches", () => {
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
      // Nobody hears it, and a mention reaches whoever may read it: no observer, which has no inbox.
      const nowhere = (await plane.run("who", "nowhere", "--as", "watcher")).out;
      expect(nowhere).toMatch(/nobody hears #nowhere\nalice +by mention only +#> +u_/);
      expect(nowhere).not.toMatch(/watcher/);
      expect(seen.out).not.toMatch(/by mention only/);
      await plane.json("channel", "set", "general", "--class", "durable");
      await plane.json("channel", "set", "lobby", "--class", "live");
      const own = (await plane.run("channels", "--as", "alice")).out;
      expect(own).toMatch(/#general +durable +all +joined/);
      expect(own).toMatch(/#lobby +live +all +mention-reachable/);
      // Who has no inbox, and an operator, are told nothing of the kind.
      expect((await plane.run("channels", "--as", "watcher")).out).not.toMatch(/joined|mention/);
      expect((await plane.run("channels")).out).not.toMatch(/joined|mention/);
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
