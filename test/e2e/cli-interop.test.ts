/** The interop scenario of §12 with real processes in an authenticated space; step 6 is in cli-open. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Item, type TestPlane, eventually, startPlane, textsOf } from "../support/cli.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--auth", "static");
});
afterAll(() => plane.stop());

test("W12.04 steps 1-5 and 7: two owners meet in team.backend, write to each other, and a late joiner catches up", async () => {
  // 1: a space, and credentials of two owners.
  const file = (actor: string): string => join(plane.state, `${actor}.creds`);
  const minted = new Map<string, Item | undefined>();
  for (const [owner, actor] of [
    ["acme", "alice"],
    ["globex", "bob"],
    ["globex", "late"],
  ] as const) {
    const lists = ["--subscribe", "team.>", "--publish", "team.>"];
    minted.set(
      actor,
      (await plane.json("mint", "--owner", owner, "--actor", actor, "--out", file(actor), ...lists))[0],
    );
  }
  const [alice = "", bob = ""] = ["alice", "bob"].map((actor) => String(minted.get(actor)?.["principal"]));
  expect(alice.split(".")[0]).not.toBe(bob.split(".")[0]);

  // 2, 3: both connect, write presence and join.
  const tails = ["alice", "bob"].map((actor) =>
    plane.start("tail", "--creds", file(actor), "--channel", "team.backend", "--dm", "--json", "--timeout", "60"),
  );
  for (const tail of tails) await tail.saying('"kind":"joined"');
  const here = await eventually(
    () => plane.json("who"),
    (members) => members.length === 2,
  );
  expect(here.map(({ id }) => String(id)).toSorted()).toEqual([alice, bob].toSorted());

  // 4, 5: multicast and unicast.
  await plane.json("send", "#team.backend", "Can you review this?", "--creds", file("alice"));
  await plane.json("dm", bob, "Direct note.", "--creds", file("alice"));
  const bobs = await eventually(
    () => tails[1]?.items() ?? [],
    (items) => items.length === 2,
  );
  expect(bobs.toSorted((a, b) => (a.kind < b.kind ? -1 : 1))).toMatchObject([
    { kind: "channel", channel: "team.backend", historical: false, from: { id: alice, name: "alice" } },
    { kind: "dm", historical: false, from: { id: alice, name: "alice" } },
  ]);

  // 7: a late joiner gets what was said before once, marked, and what is said now once, live.
  const late = plane.start("tail", "--creds", file("late"), "--channel", "team.backend", "--json", "--timeout", "60");
  await late.saying('"historical":true');
  await plane.json("send", "team.backend", "Welcome.", "--creds", file("alice"));
  await late.saying("Welcome.");
  for (const tail of [...tails, late]) tail.process.kill("SIGINT");
  const lates = (await late.ended).items();
  expect(lates.map(({ historical }) => historical)).toEqual([true, false]);
  expect(textsOf(lates)).toEqual(["Can you review this?", "Welcome."]);
  const ends = await Promise.all(tails.map((tail) => tail.ended));
  expect(ends.map(({ code }) => code)).toEqual([0, 0]);
  // The sender hears its own multicast on the channel, and nobody else's direct message.
  expect(textsOf(ends[0]?.items() ?? [])).toEqual(["Can you review this?", "Welcome."]);
});
