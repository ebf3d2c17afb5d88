/** `cotal pending`, `cotal trace`, and the notice of copies that a limit removed, as somebody at a terminal has them. */
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type TestPlane, eventually, including, matching, startPlane } from "../support/cli.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--auth", "static");
  await eventually(
    () => plane.run("status"),
    ({ out }) => /delivery +ok/.test(out),
  );
});
afterAll(() => plane.stop());

/** Joins durable, reads one, and is away from then on. */
async function joinedOnce(actor: string, channel: string): Promise<void> {
  const tail = plane.start("tail", "--json", "--as", actor, "--channel", channel, "--count", "1", "--timeout", "60");
  await tail.saying('"kind":"joined"');
  await plane.json("send", channel, "first", "--as", "alice");
  expect(await tail.ended).toMatchObject({ code: 0 });
}

describe("did Bob get it?", () => {
  test("the operator sees what waits for whom, Bob sees his own, and the sender where it is", async () => {
    await joinedOnce("bob", "general");
    const [sent] = await plane.json("send", "general", "while you were away", "--as", "alice");
    const id = String(sent?.["id"]);
    const traced = await eventually(
      () => plane.run("trace", id, "--as", "alice"),
      ({ out }) => out.includes("was not handed out yet"),
    );
    expect(traced.out).toMatch(/^#general: stored in CHAT_main at \d+, 20\S+Z\n {2}bob \(\S+\.bob\) +waits for it/);
    const [item] = await plane.json("trace", id, "--as", "alice");
    expect(item).toMatchObject({ kind: "trace", what: "chat", id, seq: sent?.["seq"], storedAt: matching(/Z$/) });
    expect(item).toMatchObject({ recipients: { list: [{ name: "bob", state: "waiting", copiedAt: matching(/Z$/) }] } });

    const everybodys = await plane.json("pending");
    const tiers = [{ tier: "dm" }, { tier: "durable", waiting: 1, oldestAt: matching(/Z$/) }];
    expect(everybodys).toMatchObject([{ kind: "pending", actor: "bob", tiers }, { kind: "pending-as-of" }]);
    expect((await plane.run("pending", "bob")).out).toMatch(/bob \(\S+\) +channel copies +1 +0 +\d+[smh] ago/);
    const [own] = await plane.json("pending", "--as", "bob");
    expect(own).toEqual(everybodys[0]);
    // Not a word of what was said.
    expect(JSON.stringify([everybodys, item])).not.toContain("while you were away");

    expect(
      await plane.run("tail", "--as", "bob", "--channel", "general", "--count", "2", "--timeout", "60"),
    ).toMatchObject({ code: 0 });
    const after = await eventually(
      () => plane.run("trace", id, "--as", "alice"),
      ({ out }) => out.includes("confirmed: the broker has its acknowledgement"),
    );
    expect(after.out).toContain("confirmed: the broker has its acknowledgement");
    expect((await plane.json("pending")).map(({ kind }) => kind)).toEqual(["pending-as-of"]);
    expect((await plane.json("pending", "--all")).map(({ name }) => name)).toEqual(including("alice", "bob"));
  });

  test("a direct message and a request to a role are traced too; who asks wrongly is told what to do", async () => {
    const [dm] = await plane.json("dm", "bob", "psst", "--as", "alice");
    const [asked] = await plane.json("ask", "nobodys", "anyone?", "--as", "alice");
    const ids = [dm, asked].map((one) => String(one?.["id"]));
    expect((await plane.run("trace", ids[0] ?? "", "--as", "alice")).out).toMatch(/to \S+\.bob: stored in DM_main/);
    expect((await plane.run("trace", ids[1] ?? "", "--as", "alice")).out).toContain("nobody was ever given this role");
    const foreign = await plane.run("trace", ids[0] ?? "", "--as", "bob");
    expect(foreign.code).toBe(1);
    expect(foreign.out).toContain("nothing of yours is stored under that id");
    expect((await plane.run("pending", "alice", "--as", "bob")).code).toBe(2);
    expect((await plane.run("trace", "x", "--seq", "3", "--as", "bob")).code).toBe(2);
    const unknown = await plane.run("pending", "nobody");
    expect(unknown.code).toBe(1);
    expect(unknown.err).toContain("nobody called nobody has an inbox now");
  });
});

test("W8.14 W8.15 a dry run shows and changes nothing; then a tail says that copies may have been dropped, and where earlier ones may still be", async () => {
  await joinedOnce("carol", "busy");
  const [before] = await plane.json("limits", "show");
  const dry = await plane.run("limits", "set", "delivery", "--count", "2", "--dry-run");
  expect(dry.out).toMatch(/^delivery: age none, count 1000 now; age none, count 2 would remove \d+ of \d+, at once/);
  expect(dry.out).toContain("nothing was changed");
  expect(await plane.json("limits", "show")).toEqual([before]);
  await plane.json("limits", "set", "delivery", "--count", "2");
  const tail = await eventually(
    async () => {
      for (let n = 0; n < 4; n += 1) await plane.json("send", "busy", `n${n}`, "--as", "alice");
      return plane.run("tail", "--as", "carol", "--channel", "busy", "--count", "1", "--timeout", "20");
    },
    ({ err }) => err.includes("may have been dropped"),
    200_000,
  );
  expect(tail.err).toContain("earlier ones may have been dropped; history may still have them");
});
