/** What is told of the member groups: an alert fires where nobody writes one, and never for one that is gone. */
import { expect, test } from "vitest";
import { groupSayings } from "../../services/delivery/say-groups.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { createMetrics } from "../../shared/daemon/metrics.ts";

const NOBODY = 'cotal_delivery_group_held{space="main",group="1"} 0';

test("A.02 a post that waits for its copies is told by when it was stored, and no more once it has them or the group is another's", async () => {
  const metrics = createMetrics({ daemon: "delivery", processMetrics: false });
  const log = createLog({ service: "delivery", level: "error", destination: { write: () => undefined } });
  const say = groupSayings({ log, metrics });
  const line = async (): Promise<string | undefined> =>
    (await metrics.text()).split("\n").find((text) => text.startsWith("cotal_delivery_fanout_waiting_since_seconds{"));
  say("main", { type: "waiting", group: 0, since: 1_800_000_000_500 });
  expect(await line()).toMatch(/ 1800000000\.5$/);
  say("main", { type: "waiting", group: 0, since: undefined });
  expect(await line()).toMatch(/ 0$/);
  say("main", { type: "waiting", group: 0, since: 1_800_000_000_500 });
  say("main", { type: "lost", group: 0 });
  expect(await line()).toMatch(/ 0$/);
});

test("A.02 a group that nobody holds is 0, and no figure at all once there are fewer groups", async () => {
  const metrics = createMetrics({ daemon: "delivery", processMetrics: false });
  const log = createLog({ service: "delivery", level: "error", destination: { write: () => undefined } });
  const say = groupSayings({ log, metrics });
  say("main", { type: "numbered", groups: 2 });
  for (const group of [0, 1]) {
    say("main", { type: "held", group });
    say("main", { type: "position", group, position: 7 });
    say("main", { type: "lost", group });
  }
  expect(await metrics.text()).toContain(NOBODY);
  say("main", { type: "numbered", groups: 1 });
  const text = await metrics.text();
  expect(text).toContain(NOBODY.replace('group="1"', 'group="0"'));
  expect(text).not.toMatch(/^cotal_delivery_(group_held|fanout_position)\{space="main",group="1"\}/m);
});
