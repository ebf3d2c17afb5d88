/**
 * `cotal groups set` while posts flow: two processes of the delivery service carry it out, one of them is killed in
 * between. What each member has is counted from the stream.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { GroupsShowAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { GROUP_CHECK } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { startDeliveryService } from "../support/delivery-service.ts";
import { failure } from "../support/refusal.ts";
import { sessionsOf } from "../support/sessions.ts";
import { startSpace } from "../support/space.ts";
import { copiesOf, markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 240_000 });

/** A lease expires after fifteen seconds; the rest is for a slow machine. */
const MANY = 90_000;
const MEMBERS = 8;

test("A.03 from one group to four to two while posts flow, one of two processes killed: each member has each post once", async () => {
  const space = await startSpace({ delivery: false });
  const sessions = sessionsOf(space);
  const endpoint = EndpointName.Delivery;
  const shown = async () => GroupsShowAnswer.parse(await space.call("groups-show", {}, { endpoint }));
  const isChanged = (groups: number) => async (): Promise<boolean> => {
    const now = await shown().catch(() => undefined);
    return now?.state === "changed" && now.inForce === groups;
  };
  const first = startDeliveryService(space);
  const daemons = [first];
  try {
    await first.ready();
    const second = startDeliveryService(space);
    daemons.push(second);
    await second.ready();
    const store = await space.store();
    // A copy too many is then seen, and does not push out another.
    for (const which of ["chat", "delivery"])
      await space.call("limits-set", { store: which, maxPerSubject: 1_000_000 });
    const speaker = await sessions.minted({ actor: "speaker", subscribe: [">"], publish: [">"] });
    const members = [];
    for (let n = 0; n < MEMBERS; n += 1) {
      const one = await sessions.minted({ actor: `m${n}`, subscribe: [">"], publish: [">"] });
      await until(
        "it has joined",
        async () => (await one.join("k", { replay: false })).state === "joined durable",
        MANY,
      );
      members.push(one);
    }
    const sent: string[] = [];
    let [isOver, last] = [false, 0];
    const flow = (async () => {
      while (!isOver) {
        const words = `k${sent.length}`;
        ({ seq: last } = await speaker.send("k", words));
        sent.push(words);
        // A conversation, and no load.
        await sleep(10);
      }
    })();
    expect(await failure(space.call("groups-set", { groups: 65 }))).toMatchObject({ code: "bad-request" });
    expect(await space.call("groups-set", { groups: 4 })).toMatchObject({ wanted: 4, before: 1 });
    await until("there are four", isChanged(4), MANY);
    const atFour = sent.length;
    await until("some are posted to four", () => sent.length > atFour + 20, MANY);
    expect(await space.call("groups-set", { groups: 2 })).toMatchObject({ wanted: 2, before: 4 });
    await second.kill("SIGKILL");
    await until("there are two", isChanged(2), MANY);
    const atTwo = sent.length;
    await until("some are posted to two", () => sent.length > atTwo + 20, MANY);
    isOver = true;
    await flow;
    const passed = async (group: number): Promise<boolean> => ((await markerOf(store, group))?.sequence ?? 0) >= last;
    await until("all are copied", async () => (await passed(0)) && (await passed(1)), MANY);
    expect(await markerOf(store, 3)).toMatchObject({ state: "retired" });
    for (const one of members) expect((await copiesOf(store, one.me)).map(({ text }) => text)).toEqual(sent);
    const { findings } = (await space.call("check", {})) as { findings: { check: string }[] };
    expect(findings.filter(({ check }) => check === GROUP_CHECK)).toEqual([]);
  } finally {
    await sessions.closeAll();
    await Promise.all(daemons.map((one) => one.kill("SIGKILL")));
    await space.stop();
  }
});
