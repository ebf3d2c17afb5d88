/** The endpoint that the `call` bench serves: one command, as small as one can be. */
import { z } from "zod";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";

export const SPACE = "bench";
export const ENDPOINT = "com.acme.bench";
/** What the bare side answers on: with a queue, and once for each instance. */
export const BARE_ONE = "bare.one";
export const BARE_ALL = "bare.all";

export const BENCH_CLUSTER = defineCluster({
  urn: "com.acme.bench.v1",
  revision: 1,
  commands: [
    {
      name: "echo",
      class: "ephemeral",
      effect: "read",
      input: z.looseObject({ text: z.string() }),
      output: z.looseObject({ text: z.string() }),
    },
  ],
});

export type CallServerSetup = {
  readonly url: string;
  /** Instances that this process serves. */
  readonly instances: number;
  /** It answers the provisioner's reads too: artifacts, and a registry of its own instances. */
  readonly reads: boolean;
};
