/** A space as the provisioner sets it up: stores, settings, several spaces, coming back by itself. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifyStreams, streamState } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { DEFAULTS_KEY, SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace();
});
afterAll(() => space.stop());

const json = (data: Uint8Array | undefined): unknown => JSON.parse(new TextDecoder().decode(data));

describe("a new space", () => {
  test("W8.01, W8.18, PH.02, F1.11: every stream and bucket has the shape of the contract", async () => {
    const store = await space.store();
    expect(await verifyStreams(store, spaceStreams("main", { replicas: 1 }))).toEqual([]);
    const journal = await streamState(store, spaceNames("main").wfj);
    expect(journal.config).toMatchObject({ max_age: 0, max_msgs: -1, max_msgs_per_subject: -1 });
    expect(journal.config["allow_direct"]).not.toBe(true);
  });

  test("W7.02: the defaults say durable right after the start", async () => {
    const { channels } = spaceNames("main").bucket;
    const row = await leaderLast(await space.store(), bucketStream(channels), kvKey(channels, DEFAULTS_KEY));
    expect(json(row?.data)).toEqual({ deliveryClass: "durable" });
  });

  test("H54: the settings row names the mode and the provisioner's principal", async () => {
    const { channels } = spaceNames("main").bucket;
    const row = await leaderLast(await space.store(), bucketStream(channels), kvKey(channels, SPACE_KEY));
    const settings = SpaceSettings.parse(json(row?.data));
    expect(settings).toMatchObject({ auth: "static", reads: "mediated", replicas: 1 });
    expect(settings.daemons["provisioner"]).toMatch(/^u_[a-z2-7]{26}\.provisioner$/);
  });

  test("W8.03: starting the provisioner again changes neither limit", async () => {
    const { chat, dm } = spaceNames("main");
    const store = await space.store();
    await space.call("limits-set", { store: "chat", maxAgeSeconds: 86_400, maxPerSubject: 7 });
    await space.call("limits-set", { store: "dm", maxAgeSeconds: null, maxPerSubject: 9 });
    await space.provisioner.kill("SIGTERM");
    await space.provisioner.restart();
    expect((await streamState(store, chat)).config).toMatchObject({ max_age: 86_400e9, max_msgs_per_subject: 7 });
    expect((await streamState(store, dm)).config).toMatchObject({ max_age: 0, max_msgs_per_subject: 9 });
    expect(space.provisioner.log()).not.toContain("another shape");
    await space.call("limits-set", { store: "chat", maxAgeSeconds: null, maxPerSubject: 1000 });
    await space.call("limits-set", { store: "dm", maxAgeSeconds: null, maxPerSubject: null });
  });
});

describe("history limits", () => {
  test("W8.02: a new space keeps 1000 per sender and channel, and every direct message", async () => {
    const fresh = await startSpace();
    try {
      expect(await fresh.call("limits-show", {})).toEqual({
        chat: { maxAgeSeconds: null, maxPerSubject: 1000 },
        dm: { maxAgeSeconds: null, maxPerSubject: null },
        delivery: { maxAgeSeconds: null, maxPerSubject: 1000 },
      });
    } finally {
      await fresh.stop();
    }
  });

  test.each([
    { what: "119 seconds", args: { store: "chat", maxAgeSeconds: 119 } },
    { what: "3651 days", args: { store: "dm", maxAgeSeconds: 3651 * 86_400 } },
    { what: "half a second more", args: { store: "chat", maxAgeSeconds: 120.5 } },
    { what: "a count of 0", args: { store: "chat", maxPerSubject: 0 } },
    { what: "an hour for the backstop", args: { store: "delivery", maxAgeSeconds: 3600 } },
  ])("W8.02: $what is refused, and nothing changed", async ({ args }) => {
    const before = await space.call("limits-show", {});
    expect((await failure(space.call("limits-set", args))).code).toBe("bad-request");
    expect(await space.call("limits-show", {})).toEqual(before);
  });

  test.each([
    { what: "2 minutes", args: { store: "chat", maxAgeSeconds: 120 } },
    { what: "3650 days", args: { store: "chat", maxAgeSeconds: 3650 * 86_400 } },
    { what: "a count of 1", args: { store: "dm", maxPerSubject: 1 } },
    { what: "none", args: { store: "dm", maxPerSubject: null } },
  ])("W8.02: $what is taken and read back", async ({ args }) => {
    const { store, ...parts } = args;
    expect(await space.call("limits-set", args)).toMatchObject({ [store]: parts });
  });
});

describe("several spaces on one broker", () => {
  test("W9.02, A.04: a second space comes without a restart and leaves the first untouched", async () => {
    const agent = await space.mint({ actor: "stays", subscribe: ["general"], publish: ["general"] });
    const connection = await space.open(agent);
    const pid = space.broker.pid();
    await space.addSpace("lab");
    expect(space.broker.pid()).toBe(pid);
    expect(connection.isUp()).toBe(true);
    const lab = SpaceSettings.parse(
      ((await space.call("space", {}, { space: "lab" })) as { settings: unknown }).settings,
    );
    expect(lab.space).toBe("lab");
    expect(await verifyStreams(await space.store("lab"), spaceStreams("lab", { replicas: 1 }))).toEqual([]);
  });

  test("W2.01: an operator of one space reaches nothing of the other", async () => {
    await failure(space.call("space", {}, { space: "lab", as: space.operator("main"), deadlineMs: 2000 })).then(
      (error) => expect(["permission-denied", "unavailable"]).toContain(error.code),
    );
  });
});

describe("limits of the accounts", () => {
  test("H67, W8.04: a space's own disk limit refuses what is past it, and is kept at the next push", async () => {
    const small = await startSpace();
    try {
      const agent = await small.mint({ actor: "filler", publish: ["general"] });
      const nc = await small.connect(agent);
      const subject = spaceSubjects("main").chat(agent.view.principal, "general");
      const fill = async (): Promise<unknown> => (await nc.request(subject, new Uint8Array(200_000))).json();
      expect(await fill()).toMatchObject({ stream: "CHAT_main" });
      await small.trust("space", "--space", "main", "--server", small.url, "--disk-bytes", "1000000");
      await small.trust("space", "--space", "main", "--server", small.url);
      await expect.poll(fill, { timeout: 10_000, interval: 1 }).toMatchObject({ error: { err_code: 10_002 } });
    } finally {
      await small.stop();
    }
  });
});

describe("faults", () => {
  test("kill -9 of the provisioner: a new process serves again under a higher epoch", async () => {
    const before = space.provisioner.pid();
    await space.provisioner.kill("SIGKILL");
    expect((await failure(space.call("space", {}, { deadlineMs: 3000 }))).code).toBe("unavailable");
    await space.provisioner.restart();
    expect(space.provisioner.pid()).not.toBe(before);
    await space.call("space", {});
  });

  test("kill -9 of the broker: the provisioner comes back by itself", async () => {
    await space.broker.kill();
    await space.broker.restart();
    await expectServed(space);
  });

  test("a frozen broker: calls time out as unknown, and work again once it thaws", async () => {
    space.broker.freeze();
    const asked = failure(space.call("space", {}, { deadlineMs: 1000 }));
    expect(await asked).toMatchObject({ code: "deadline-exceeded", outcome: "unknown" });
    space.broker.thaw();
    await expectServed(space);
  });

  test("PH.02: a store of another shape is told, named, and not mended in silence", async () => {
    const { dm } = spaceNames("main");
    const store = await space.store();
    const { config } = await streamState(store, dm);
    const changed = await store.request(jsApi.streamUpdate(dm), JSON.stringify({ ...config, allow_direct: true }));
    expect(changed.json()).toMatchObject({ config: { allow_direct: true } });
    const { findings } = (await space.call("check", {})) as { findings: { message: string; next: string }[] };
    expect(findings).toEqual([
      expect.objectContaining({ message: `${dm}: allow_direct is true, and false is needed` }),
    ]);
    await store.request(jsApi.streamUpdate(dm), JSON.stringify({ ...config, allow_direct: false }));
  });
});

/** The provisioner answers again within the test's own deadline. */
async function expectServed(of: TestSpace): Promise<void> {
  await expect
    .poll(
      () =>
        of.call("space", {}, { deadlineMs: 1000 }).then(
          () => "served",
          () => "not yet",
        ),
      { timeout: 25_000 },
    )
    .toBe("served");
}
