/**
 * Whoever gives up waiting gives its place back. Two agents of one person ask for memberships with a deadline that
 * nobody can keep, as many as there are places; a third, and who ends connections, are served all the same.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { daemonCalls } from "../../shared/client/evictions.ts";
import { DeliveryCommand } from "../../shared/grants/commands.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { barrierCaller } from "../support/delivery-service.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { failure } from "../support/refusal.ts";
import type { TestSpace } from "../support/space.ts";

/** Of one caller at once (`services/delivery/config.ts`); two of them are all there are. */
const PER_CALLER = 64;

let world: DeliveryWorld;
let space: TestSpace;
beforeAll(async () => {
  world = await startDeliveryWorld();
  ({ space } = world);
}, 60_000);
afterAll(() => world?.stop());

/** Calls of an agent of that name, on a connection of its own. */
async function agent(actor: string) {
  const credential = await space.mint({ actor, subscribe: [">"], publish: [">"] });
  const call = daemonCalls(await space.open(credential), "main", credential.view);
  const join = async (channel: string, deadlineMs?: number): Promise<unknown> => {
    const options = deadlineMs === undefined ? {} : { deadlineMs };
    const { data } = await call(EndpointName.Delivery, DeliveryCommand.DurableJoin, { channel, cursor: 0 }, options);
    return data;
  };
  return { principal: credential.view.principal, join };
}

test("places of who gave up are given back: others join, and connections are ended", async () => {
  const [one, two, bob] = [await agent("one"), await agent("two"), await agent("bob")];
  for (let round = 0; round < 3; round += 1) {
    const asked = [one, two].flatMap(({ join }) =>
      Array.from({ length: PER_CALLER }, (_, n) => failure(join(`given.up${round}.${n}`, 1))),
    );
    await Promise.allSettled(asked);
  }
  // What was given up a moment ago may still run.
  await expect.poll(() => bob.join("general"), { timeout: 20_000 }).toMatchObject({ state: "joined" });
  expect(await one.join("general")).toMatchObject({ state: "joined" });
  const { evict } = await barrierCaller(space, "auth-server");
  const [verdict] = await evict(one.principal);
  expect(verdict?.closed).toBeGreaterThan(0);
}, 60_000);
