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
      const { collectedMiB, heldMiB } = watchMemory(service);
      await comeIn(world, FIRST);
      const [before, held] = [await collectedMiB(), await heldMiB()];
      // Collected as often as before the first look: else it is the height of the busiest moment that is compared.
      let after = before;
      for (let done = FIRST; done < CONNECTS; done += FIRST) {
        await comeIn(world, FIRST);
        after = await collectedMiB();
      }
      const more = (await heldMiB()) - held;
      console.log(`resident after ${FIRST}: ${before.toFixed(1)} MiB; after ${CONNECTS}: ${after.toFixed(1)} MiB`);
      console.log(`in use: ${held.toFixed(1)} MiB and ${more.toFixed(2)} MiB more`);
      expect(more).toBeLessThan(4);
      expect(Math.abs(after - before) * 1.048_576).toBeLessThan(20);
    } finally {
      await world.close();
    }
  },
  15 * 60_000,
);
