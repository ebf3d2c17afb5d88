/** 50,000 people come in through one auth service: it keeps nothing of them. */
import { expect, test } from "vitest";
import { type CalloutWorld, openCalloutWorld } from "../bench/callout-world.ts";
import { INSPECTED, watchMemory } from "../support/collected.ts";

const CONNECTS = 50_000;
const FIRST = 5000;
/** Of one order to the clients, which answer within a minute. */
const ORDER = 1000;

async function comeIn(world: CalloutWorld, count: number): Promise<void> {
  // On a machine that is busy elsewhere a broker gives up on one now and then: whoever that is comes again.
  for (let done = 0; done < count; done += ORDER)
    await world.connects("ours", { count: ORDER, inFlight: 32, again: 9 });
}

test(
  "after 50,000 connects resident memory lies within 20 MB of what it was after the first 5,000",
  async () => {
    const world = await openCalloutWorld({ people: 10, actors: 10 }, INSPECTED);
    try {
      const [service] = world.services;
      if (service === undefined) throw new Error("there is no auth service");
      const { collectedMiB } = watchMemory(service);
      await comeIn(world, FIRST);
      const before = await collectedMiB();
      await comeIn(world, CONNECTS - FIRST);
      const after = await collectedMiB();
      console.log(`resident after ${FIRST}: ${before.toFixed(1)} MiB; after ${CONNECTS}: ${after.toFixed(1)} MiB`);
      expect(Math.abs(after - before) * 1.048_576).toBeLessThan(20);
    } finally {
      await world.close();
    }
  },
  15 * 60_000,
);
