/** An open space from `cotal up --open`: what it does, and that it says what it is. */
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type TestPlane, cli, eventually, matching, startPlane, textsOf } from "../support/cli.ts";

// Each test runs a dozen real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--open");
});
afterAll(() => plane.stop());

describe("an open space", () => {
  test("W12.04 step 6: a request to a role reaches exactly one of its holders, with kind anycast", async () => {
    const holders = ["r1", "r2", "r3"].map((actor) =>
      plane.start("tail", "--as", actor, "--role", "reviewer", "--json", "--timeout", "110"),
    );
    await eventually(
      () => plane.json("who"),
      (here) => here.filter(({ role }) => role === "reviewer").length === 3,
    );
    const sent = ["one", "two", "three"];
    for (const text of sent) {
      const [item] = await plane.json("ask", "reviewer", text, "--as", "alice");
      expect(item).toMatchObject({ kind: "sent", role: "reviewer", stream: "TASK_main" });
      expect(item).not.toHaveProperty("waitsFor");
    }
    await eventually(
      () => holders.flatMap((holder) => holder.items()),
      (items) => items.length >= sent.length,
      60_000,
    );
    for (const holder of holders) holder.process.kill("SIGINT");
    const got = (await Promise.all(holders.map((holder) => holder.ended))).flatMap((ran) => ran.items());
    expect(textsOf(got).toSorted()).toEqual(sent.toSorted());
    expect(got.map(({ kind, role }) => [kind, role])).toEqual(sent.map(() => ["anycast", "reviewer"]));
    expect(got[0]?.["from"]).toMatchObject({ id: "local.alice", name: "alice" });
  });

  test("a request that nobody took yet waits for its first holder", async () => {
    await plane.json("ask", "later", "are you there", "--as", "alice");
    const got = await plane.json("tail", "--as", "late", "--role", "later", "--count", "1", "--timeout", "20");
    expect(textsOf(got)).toEqual(["are you there"]);
  });

  test("a kept uid makes an inbox survive the command: what came in between is there", async () => {
    await plane.json("tail", "--as", "kim", "--dm", "--timeout", "0.3");
    await plane.json("dm", "local.kim", "in between", "--as", "alice");
    const got = await plane.json("tail", "--as", "kim", "--dm", "--count", "1", "--timeout", "20");
    expect(textsOf(got)).toEqual(["in between"]);
  });

  test("it says loudly that nobody's identity is proved: at the start and in status", async () => {
    const again = await cli(["up", "--detach", "--state", plane.state]);
    expect(again.out).toContain("OPEN SPACE");
    expect((await plane.run("status")).out).toContain("nobody's identity is proved");
    expect((await plane.json("space", "show"))[0]).toMatchObject({ kind: "space", auth: "open" });
  });

  test.each([
    ["mint", ["mint", "--owner", "acme", "--actor", "x"]],
    ["deprovision", ["deprovision", "local.x"]],
    ["space add", ["space", "add", "lab"]],
    ["another mode", ["up", "--auth", "static", "--detach"]],
  ])("%s is refused with 1 and says what to do instead", async (_what, args) => {
    const ran = await plane.run(...args, "--json");
    expect(ran.code).toBe(1);
    expect(ran.items()[0]).toMatchObject({ kind: "error", next: matching(/./) });
  });

  test("a second open space of the same state is served from then on, and a space only named is not", async () => {
    await plane.run("send", "general", "x", "--as", "alice", "--space", "typo");
    await plane.run("down");
    for (const space of ["second", "main"]) {
      const up = await cli(["up", "--detach", "--json", "--state", plane.state, "--space", space]);
      expect(up.code).toBe(0);
      if (space === "second") await plane.run("down");
    }
    expect((await plane.run("space", "show", "--space", "second")).code).toBe(0);
    const typo = await plane.run("space", "show", "--space", "typo", "--json");
    expect([typo.code, typo.items()[0]?.["code"]]).toEqual([3, "unavailable"]);
  });

  test("a join link without a secret is enough to enter", async () => {
    const link = `cotal://127.0.0.1:${plane.port}/main?channel=open-door`;
    await plane.json("send", "open-door", "come in", "--as", "alice");
    const got = await plane.json("join", link, "--as", "guest", "--count", "1", "--timeout", "20");
    expect(textsOf(got)).toEqual(["come in"]);
  });

  test("PH.02: a store whose shape was changed is a finding that names the setting", async () => {
    expect((await plane.run("doctor")).code).toBe(0);
    const nc = await connect({ servers: plane.server });
    const jsm = await jetstreamManager(nc);
    const { config } = await jsm.streams.info("CHAT_main");
    await jsm.streams.update("CHAT_main", { ...config, discard: "new" as typeof config.discard });
    const ran = await plane.run("doctor", "--json");
    await jsm.streams.update("CHAT_main", config);
    await nc.close();
    expect(ran.code).toBe(5);
    expect(ran.items()[0]).toMatchObject({
      kind: "finding",
      check: "store shape",
      message: matching(/CHAT_main: discard/),
    });
    expect((await plane.run("doctor")).code).toBe(0);
  });
});
