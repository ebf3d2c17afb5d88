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
          "history",
          "pending",
          "principal-liveness",
          "proof",
          "records",
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
      const joined = await open.run("call", "delivery", "durable-list", "--json");
      expect(joined.items()[0]).toMatchObject({ kind: "error", code: "failed-precondition" });
    } finally {
      await open.stop();
    }
  });
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
});
