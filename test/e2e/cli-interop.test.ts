/**
 * The interop scenario of §12 with real processes in authenticated spaces: between two owners where credentials are
 * minted, and whole where people sign in, with takes and durable memberships. Step 6 of an open space is in cli-open.
 */
import { join } from "node:path";
import { afterAll, expect, test, vi } from "vitest";
import {
  type Item,
  type Running,
  type TestPlane,
  endAll,
  eventually,
  matching,
  startPlane,
  textsOf,
} from "../support/cli.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

/** A deadline that bounds a failure, on a machine that does other things too. */
const PATIENCE_MS = 60_000;

afterAll(endAll);

async function withPlane(auth: string, run: (plane: TestPlane) => Promise<void>): Promise<void> {
  const plane = await startPlane("--auth", auth);
  try {
    await run(plane);
  } finally {
    await plane.stop();
  }
}

test("W12.04 steps 1-5 and 7: two owners meet in team.backend, write to each other, and a late joiner catches up", () =>
  withPlane("static", async (plane) => {
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
      plane.start("tail", "--creds", file(actor), "--channel", "team.backend", "--dm", "--json", "--timeout", "280"),
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
    const late = plane.start(
      "tail",
      "--creds",
      file("late"),
      "--channel",
      "team.backend",
      "--json",
      "--timeout",
      "280",
    );
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
  }));

test("W12.04 W12.01 steps 1-7 where people sign in: durable members, a request that one reviewer takes, and a late joiner", () =>
  withPlane("user", async (plane) => {
    // 1: the space, and who may act in it; what cotal up has started serves at once.
    const lists = ["--subscribe", "team.>", "--publish", "team.>"];
    for (const name of ["alice", "bob", "late"]) await plane.json("actor", "grant", name, ...lists);
    for (const name of ["rita", "ron"]) await plane.json("actor", "grant", name, "--role", "reviewer");
    const idOf = async (name: string): Promise<string> =>
      String((await plane.json("whoami", "--as", name))[0]?.["principal"]);
    const [alice, bob] = [await idOf("alice"), await idOf("bob")];

    // 2, 3: both connect, write presence and join: the memberships are durable.
    const tail = (name: string, ...more: string[]): Running =>
      plane.start("tail", "--as", name, "--json", "--timeout", "280", ...more);
    const [alices, bobs] = ["alice", "bob"].map((name) => tail(name, "--channel", "team.backend", "--dm")) as [
      Running,
      Running,
    ];
    for (const one of [alices, bobs]) await one.saying('"state":"joined durable"', PATIENCE_MS);
    const here = await eventually(
      () => plane.json("who"),
      (members) => members.length === 2,
      PATIENCE_MS,
    );
    expect(here.map(({ id }) => String(id)).toSorted()).toEqual([alice, bob].toSorted());

    // 4, 5: multicast and unicast.
    await plane.json("send", "#team.backend", "Can you review this?", "--as", "alice");
    await plane.json("dm", bob, "Direct note.", "--as", "alice");
    const got = await eventually(
      () => bobs.items(),
      (items) => items.length === 2,
      PATIENCE_MS,
    );
    expect(got.toSorted((a, b) => (a.kind < b.kind ? -1 : 1))).toMatchObject([
      { kind: "channel", channel: "team.backend", historical: false, from: { id: alice, name: "alice" } },
      { kind: "dm", historical: false, from: { id: alice, name: "alice" } },
    ]);

    // 6: one of two reviewers takes it, its sender is told by whom, and can't take it back any more.
    const holders = ["rita", "ron"].map((name) => tail(name, "--role", "reviewer"));
    await eventually(
      () => plane.json("who"),
      (members) => members.filter(({ role }) => role === "reviewer").length === 2,
      PATIENCE_MS,
    );
    const [asked] = await plane.json("ask", "reviewer", "Look at the diff.", "--as", "alice");
    expect(asked).toMatchObject({ kind: "sent", role: "reviewer", stream: "TASK_main" });
    const shown = (): Item[] => holders.flatMap((holder) => holder.items());
    await eventually(shown, (items) => items.length > 0, PATIENCE_MS);
    expect(shown()).toMatchObject([{ kind: "anycast" }]);
    const taker = holders[0]?.items().length === 1 ? "rita" : "ron";
    // The holder that had it has done it with its ack; alice was told of the take by the daemon.
    const told = await eventually(
      () => alices.items().filter(({ kind }) => kind === "dm"),
      (items) => items.length === 1,
      PATIENCE_MS,
    );
    expect(JSON.stringify(told)).toContain(await idOf(taker));
    const late = await plane.run("task", "cancel", String(asked?.["seq"]), "--as", "alice", "--json");
    expect([late.code, late.items()[0]?.["state"]]).toEqual([1, matching(/taken|unknown/)]);

    // A durable member that was away has what was said meanwhile, once.
    bobs.process.kill("SIGINT");
    expect((await bobs.ended).code).toBe(0);
    await plane.json("send", "#team.backend", "While you were away.", "--as", "alice");
    const back = tail("bob", "--channel", "team.backend", "--count", "3");
    await back.saying("While you were away.", PATIENCE_MS);

    // 7: a late joiner gets what was said before once, marked, and what is said now once, live.
    const joiner = tail("late", "--channel", "team.backend", "--count", "3");
    await joiner.saying("While you were away.", PATIENCE_MS);
    await plane.json("send", "team.backend", "Welcome.", "--as", "alice");
    const lates = (await joiner.ended).items();
    expect(textsOf(lates)).toEqual(["Can you review this?", "While you were away.", "Welcome."]);
    expect(lates.map(({ historical }) => historical)).toEqual([true, true, false]);

    // What history and his copies both brought is shown once.
    expect(textsOf((await back.ended).items()).toSorted()).toEqual(textsOf(lates).toSorted());

    for (const one of [alices, ...holders]) one.process.kill("SIGINT");
    await Promise.all([alices, ...holders].map(({ ended }) => ended));
    expect(shown()).toMatchObject([{ kind: "anycast", role: "reviewer", from: { id: alice } }]);
  }));
