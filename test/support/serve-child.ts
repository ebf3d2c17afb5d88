/**
 * A server in a process of its own, for the tests that kill one: `begin` and `end` of each handler go to its
 * standard output before anything of the answer leaves. Arguments: the broker's URL, the instance id.
 */
import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { handlersOf, serveEndpoint } from "../../shared/serve/serve.ts";

export const STEP = defineCluster({
  urn: "com.acme.step.v1",
  revision: 1,
  commands: [
    {
      name: "step",
      class: "ephemeral",
      effect: "write",
      input: z.strictObject({ id: z.string(), ms: z.int() }),
      output: z.strictObject({ id: z.string() }),
    },
  ],
});
export const stepContract = compileContract([STEP], createValidators());
export const STEP_ENDPOINT = "com.acme.step";

const say = (line: string): void => void writeSync(1, `${line}\n`);

if (process.argv[1] === import.meta.filename) {
  const { dial, SPACE } = await import("./serve-rig.ts");
  const [, , url = "", instanceId = ""] = process.argv;
  const { nc } = await dial(url, "step");
  await serveEndpoint({
    nc,
    space: SPACE,
    endpoint: STEP_ENDPOINT,
    instanceId,
    epoch: 1,
    contract: stepContract,
    handlers: handlersOf(STEP, {
      step: async ({ id, ms }) => {
        say(`begin ${id}`);
        await sleep(ms);
        say(`end ${id}`);
        return { id };
      },
    }),
    registrationRevision: () => 1,
    concurrency: 64,
    perCaller: 64,
    onServed: () => undefined,
    now: () => performance.now(),
  });
  say("serving");
}
