/** The delivery service that `cotal up` starts with the space. */
import { afterAll, describe, expect, test, vi } from "vitest";
import { endAll, eventually, leftOf, startPlane } from "../support/cli.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });
afterAll(endAll);

type Described = { readonly commands?: readonly { readonly name: string }[] };

describe("cotal up", () => {
  test.each(["static", "user"])(
    "PA.08 PD.07 %s: the delivery service is ready with the space, and describes itself",
    async (auth) => {
      const plane = await startPlane("--auth", auth);
      try {
        // Whoever comes right after the start is read for.
        expect((await plane.run("status")).out).toMatch(/delivery +ok/);
        expect((await plane.json("channels"))[0]).toMatchObject({ kind: "channel-defaults" });
        const described = await eventually(
          () => plane.run("describe", "delivery", "--json"),
          ({ code }) => code === 0,
        );
        const [whole] = described.items();
        expect(whole).toMatchObject({ kind: "descriptor", endpoint: "delivery" });
        expect((whole as Described).commands?.map(({ name }) => name).toSorted()).toEqual([
          "acl-swept",
          "anycast-cancel",
          "anycast-status",
          "anycast-takes",
          "artifacts",
          "channels",
          "dm-history",
          "durable-join",
          "durable-leave",
          "durable-list",
          "endpoints",
          "evict-principals",
          "frontier",
          "groups-show",
          "history",
          "members",
          "pending",
          "principal-liveness",
          "proof",
          "records",
          "reload-creds",
          "roster",
        ]);
      } finally {
        await plane.stop();
      }
      expect(leftOf(plane.state)).toEqual([]);
    },
  );

  test("it comes back when it is killed; in an open space it reads, and serves nothing that needs an identity", async () => {
    const plane = await startPlane("--auth", "static");
    try {
      const first = await eventually(
        () => plane.pid("delivery"),
        (pid) => pid > 0,
      );
      process.kill(first, "SIGKILL");
      const second = await eventually(
        () => plane.pid("delivery"),
        (pid) => pid > 0 && pid !== first,
      );
      expect(second).not.toBe(first);
      const back = await eventually(
        () => plane.run("status"),
        ({ out }) => /delivery +ok/.test(out),
      );
      expect(back.out).toMatch(/delivery +ok/);
    } finally {
      await plane.stop();
    }
    const open = await startPlane("--auth", "open");
    try {
      const { out } = await open.run("status");
      expect(out).toMatch(/delivery +ok/);
      // Nothing is kept for members there, so nothing is said of that plane.
      expect(out).not.toMatch(/delivery plane/);
      expect((await open.json("channels"))[0]).toMatchObject({ kind: "channel-defaults" });
      for (const [command, args] of [
        ["durable-list", "{}"],
        ["proof", '{"about":"inbox"}'],
      ] as const) {
        const refused = await open.run("call", "delivery", command, "--args", args, "--json");
        expect(refused.items()[0]).toMatchObject({ kind: "error", code: "failed-precondition" });
      }
      const refused = await open.run("groups", "set", "2", "--json");
      expect(refused.items()[0]).toMatchObject({ kind: "error", code: "failed-precondition" });
    } finally {
      await open.stop();
    }
  });
});

test("A.03 H25 groups set asks for another number of member groups, and groups show says when it is made", async () => {
  const plane = await startPlane("--auth", "static");
  try {
    const [before] = await eventually(
      () => plane.json("groups", "show"),
      ([shown]) => shown?.["inForce"] === 1,
    );
    expect(before).toEqual({ kind: "groups", wanted: 1, inForce: 1, state: "changed" });
    expect((await plane.json("groups", "set", "3"))[0]).toEqual({ kind: "groups-set", wanted: 3, before: 1 });
    const after = await eventually(
      () => plane.run("groups", "show"),
      ({ out }) => out === "member groups: 3\n",
    );
    expect(after).toMatchObject({ code: 0, out: "member groups: 3\n" });
    expect((await plane.run("groups", "set", "65")).code).toBe(2);
  } finally {
    await plane.stop();
  }
});

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
      process.kill(pid, "SIGSTOP");
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
  }, 300_000);
});
