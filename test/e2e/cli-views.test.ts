/** What a person who has signed in may do beyond an agent, where the operator's credential is not at hand (§10). */
import { renameSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { trustPaths } from "../../shared/trust/folder.ts";
import { type Item, type TestPlane, startPlane } from "../support/cli.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane();
  await done("whoami");
  await done("actor", "grant", "cli", "--subscribe", ">", "--publish", ">", "--capability", "channels,purge");
  // Somebody else's machine, as far as the commands can see: signed in, and no operator.
  const { operatorCreds } = trustPaths(plane.state);
  renameSync(operatorCreds("main"), `${operatorCreds("main")}.away`);
});
afterAll(() => plane.stop());

async function done(...args: string[]): Promise<Item[]> {
  const ran = await plane.run(...args, "--json");
  expect({ args, code: ran.code, out: ran.out }).toMatchObject({ code: 0 });
  return ran.items();
}
async function refused(code: number, ...args: string[]): Promise<Item | undefined> {
  const ran = await plane.run(...args, "--json");
  expect({ args, code: ran.code }).toEqual({ args, code });
  return ran.items().at(-1);
}

describe("signed in, without an operator's credential", () => {
  test("reads what every member may read", async () => {
    expect((await done("space", "show"))[0]).toMatchObject({ kind: "space", space: "main", auth: "user" });
    expect((await done("channels"))[0]).toMatchObject({ kind: "channel-defaults" });
    await done("who");
  });

  test("W10.09 channel set asks for the view channel-writer, also under a name, and only its scope opens it", async () => {
    const [set] = await done("channel", "set", "general", "--description", "by a person");
    expect(set).toMatchObject({ kind: "channel", channel: "general", config: { description: "by a person" } });
    const lines = await done("channels");
    expect(lines.find(({ channel }) => channel === "general")).toMatchObject({
      config: { description: "by a person" },
    });
    await done("whoami", "--as", "plain");
    expect(await refused(1, "channel", "set", "general", "--description", "x", "--as", "plain")).toMatchObject({
      code: "permission-denied",
      message: expect.stringContaining("needs the scope channels") as string,
    });
  });

  test("channel purge asks whether it is meant, then removes one channel's posts and no other's", async () => {
    for (const channel of ["old", "kept"]) await done("send", channel, "a post");
    const usage = await refused(2, "channel", "purge", "#old");
    expect(usage).toMatchObject({ next: expect.stringContaining("--yes") as string });
    expect((await done("history", "old")).length).toBeGreaterThan(0);
    expect((await done("channel", "purge", "#old", "--yes"))[0]).toEqual({
      kind: "purged",
      channel: "old",
      removed: 1,
    });
    expect((await done("history", "old")).filter(({ kind }) => kind === "message")).toEqual([]);
    expect(JSON.stringify(await done("history", "kept"))).toContain("a post");
    expect(await refused(1, "channel", "purge", "kept", "--yes", "--as", "plain")).toMatchObject({
      code: "permission-denied",
    });
  });

  test("what only an operator does is refused as before, and says where it is done", async () => {
    for (const args of [
      ["limits", "show"],
      ["actor", "list"],
      ["deprovision", "x"],
    ]) {
      const item = await refused(1, ...args);
      expect([args, item]).toMatchObject([
        args,
        { message: expect.stringContaining("operator's credential") as string },
      ]);
    }
  });
});
