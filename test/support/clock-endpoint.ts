/** An endpoint of a member that tells who serves it: enough to see which of two instances answers. */
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { defineCluster, handlersOf, hostEndpoint } from "../../shared/endpoint/index.ts";
import type { Minted, TestSpace } from "./space.ts";

export const ENDPOINT = "com.example.clock";
export const CLOCK = defineCluster({
  urn: "com.example.clock.v1",
  revision: 1,
  commands: [{ name: "now", class: "ephemeral", effect: "read", output: z.strictObject({ by: z.string() }) }],
});

/** A credential that may serve it, in a space of static ones. */
export async function clockService(space: TestSpace): Promise<Minted> {
  const service = await space.mint({ actor: "clock", capabilities: ["serve"] });
  await space.call("endpoint-assign", { endpoint: ENDPOINT, owner: "acme" });
  return service;
}

/** Takes over the first run of this instance, answers as `new`, and serves until the test has finished. */
export async function expectTakenOver(
  { url }: Pick<TestSpace, "url">,
  { text }: Pick<Minted, "text">,
  instanceId: string,
): Promise<void> {
  const host = await hostEndpoint(
    { servers: [url], credentials: { kind: "static", text } },
    {
      endpoint: ENDPOINT,
      clusters: [CLOCK],
      instanceId,
      handlers: handlersOf(CLOCK, { now: () => Promise.resolve({ by: "new" }) }),
    },
  );
  onTestFinished(() => host.drain());
  expect(host).toMatchObject({ instanceId, epoch: 2 });
}
