/**
 * How daemons may be laid out: two of the provisioner for one space, one process for several spaces, a process for
 * each space.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { GROUP_CHECK } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { spawnDelivery } from "../support/delivery-process.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const SPACES = ["main", "lab"] as const;

const succeeds = (asked: Promise<unknown>): Promise<boolean> =>
  asked.then(
    () => true,
    () => false,
  );

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace({ spaces: SPACES, delivery: false });
}, 90_000);
afterAll(() => space?.stop());

describe("A.03 two provisioners of one space", () => {
  test("either mints, one that is killed takes nothing with it, and the check finds nothing wrong", async () => {
    const second = await space.anotherProvisioner();
    const minted = await Promise.all(Array.from({ length: 12 }, (_, n) => space.mint({ actor: `many_${n}` })));
    expect(new Set(minted.map(({ view }) => view.uid)).size).toBe(12);
    await space.provisioner.kill();
    await until("the other one mints", () => succeeds(space.mint({ actor: "after" })));
    await space.provisioner.restart();
    await second.kill();
    await until("the first one mints again", () => succeeds(space.mint({ actor: "again" })));
    const { findings } = (await space.call("check", {})) as { findings: { check: string }[] };
    expect(findings.filter(({ check }) => check !== GROUP_CHECK)).toEqual([]);
  }, 60_000);
});

describe("A.04 the delivery service of several spaces", () => {
  const join = async (who: Minted, name: string): Promise<unknown> => {
    const asked = { as: who, space: name, endpoint: EndpointName.Delivery, deadlineMs: 2000 };
    return space.call("durable-join", { channel: "news", cursor: 0 }, asked);
  };
  const memberOf = (name: string, actor = "reader"): Promise<Minted> =>
    space.mint({ actor, space: name, subscribe: ["news"], publish: ["news"] });

  test("in a process for each: one that is killed leaves the other space as it was", async () => {
    const of = (name: string) =>
      spawnDelivery({ state: space.state, url: space.url, more: () => ({ COTAL_SPACES: name }) });
    const [main, lab] = SPACES.map(of);
    try {
      const [one, other] = await Promise.all(SPACES.map((name) => memberOf(name)));
      if (one === undefined || other === undefined || main === undefined || lab === undefined) throw new Error("none");
      await Promise.all([main.ready(), lab.ready()]);
      await until("both serve", () => succeeds(Promise.all([join(one, "main"), join(other, "lab")])));
      await lab.kill();
      await until("the one is away", async () => (await failure(join(other, "lab"))).code === "unavailable");
      expect(await join(one, "main")).toMatchObject({ channel: "news" });
      lab.restart();
      await until("it is back", () => succeeds(join(other, "lab")));
      // Neither has a word about the other's space.
      expect(main.log()).not.toContain('"space":"lab"');
      expect(lab.log()).not.toContain('"space":"main"');
    } finally {
      await Promise.all([main?.kill("SIGTERM"), lab?.kill("SIGTERM")]);
    }
  }, 90_000);

  test("in one process: a member of one space is nobody in the other", async () => {
    const both = spawnDelivery({ state: space.state, url: space.url });
    try {
      const one = await memberOf("main", "other");
      await both.ready();
      await until("it serves", () => succeeds(join(one, "main")));
      const asked = { as: one, space: "lab", endpoint: EndpointName.Delivery, deadlineMs: 2000 };
      const refused = await failure(space.call("durable-join", { channel: "news", cursor: 0 }, asked));
      expect(refused.code).toBe("permission-denied");
      expect(both.log()).toContain('"space":"lab"');
    } finally {
      await both.kill("SIGTERM");
    }
  }, 90_000);
});
