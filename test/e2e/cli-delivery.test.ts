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
