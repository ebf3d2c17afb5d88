/**
 * The CLI takes names back while their holders are connected: each end waits for proofs that nobody is left, by a real
 * delivery service, and for one that hangs.
 */
import { afterAll, describe, expect, test, vi } from "vitest";
import { endAll, eventually, startPlane } from "../support/cli.ts";
import { stopProcess } from "../support/stopped.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });
afterAll(endAll);

describe("W131.07 taking a name back", () => {
  test("who is still connected under a revoked name is shut out when the name is granted again, at once and with proof", async () => {
    const plane = await startPlane();
    try {
      await plane.json("actor", "grant", "bob", "--subscribe", "general");
      const [before] = await plane.json("whoami", "--as", "bob");
      const tail = plane.start("tail", "--as", "bob", "--json");
      await eventually(
        () => plane.json("who"),
        (members) => members.some(({ name }) => name === "bob"),
      );
      await eventually(
        () => plane.run("status"),
        ({ out }) => /delivery +ok/.test(out),
      );
      await plane.json("actor", "revoke", "bob");
      const [granted] = await plane.json("actor", "grant", "bob", "--subscribe", "general");
      expect(granted?.["uid"]).not.toBe(before?.["uid"]);
      // Its connection was closed, and it is let in no more.
      expect(await tail.ended).toMatchObject({ code: 1 });
      expect((await plane.json("whoami", "--as", "bob"))[0]).toMatchObject({ uid: granted?.["uid"] });
    } finally {
      await plane.stop();
    }
  });

  test("W131.07 W131.11 A.08 A.12 rotate signs out and keeps the rest; an end that waits is found by doctor, and retire completes it", async () => {
    const plane = await startPlane();
    let undo = (): void => undefined;
    try {
      await plane.json("actor", "grant", "carol", "--subscribe", "general");
      const [before] = await plane.json("whoami", "--as", "carol");
      await eventually(
        () => plane.run("status"),
        ({ out }) => /delivery +ok/.test(out),
      );
      const [rotated] = await plane.json("actor", "rotate", "carol");
      expect(rotated).toMatchObject({ kind: "rotated", uid: before?.["uid"], epoch: 2 });
      const tail = plane.start("tail", "--as", "carol", "--json");
      await eventually(
        () => plane.json("who"),
        (members) => members.some(({ name, uid }) => name === "carol" && uid === before?.["uid"]),
      );
      // Nobody ends connections now, and the tail stays.
      const pid = plane.pid("delivery");
      stopProcess(pid);
      undo = () => void process.kill(pid, "SIGCONT");
      const revoked = await plane.run("actor", "revoke", "carol", "--json");
      expect(revoked.code).toBe(5);
      expect(revoked.items()[0]).toMatchObject({
        kind: "revoked",
        remains: expect.stringMatching(/still connected/) as string,
      });
      const found = await plane.run("doctor", "--json");
      expect(found.items()).toContainEqual(
        expect.objectContaining({
          kind: "finding",
          check: "lifecycles",
          next: expect.stringMatching(/cotal actor retire \S+\.carol --uid/) as string,
        }),
      );
      undo();
      const [retired] = await plane.json("actor", "retire", "carol");
      expect(retired).toMatchObject({ kind: "retired", uid: before?.["uid"] });
      expect(await tail.ended).toMatchObject({ code: 1 });
      const clean = await plane.run("doctor", "--json");
      expect(clean.items().filter(({ check }) => check === "lifecycles")).toEqual([]);
    } finally {
      undo();
      await plane.stop();
    }
  });
});
