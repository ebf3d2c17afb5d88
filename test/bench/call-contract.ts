/** The endpoints of the `call` bench: one command each, as small as one can be. */
import { z } from "zod";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";

export const SPACE = "bench";
export const ENDPOINT = "com.acme.bench";
/** Served without any of this project's code: what the subjects of the contract cost. */
export const FLOOR = "com.acme.floor";
/** Hears, and says nothing. */
export const SILENT = "com.acme.silent";
export const COMMAND = "echo";
export const EPOCH = 1;

/** What the bare side answers on: with a queue, and once for each instance. */
export const BARE_ONE = "bare.one";
export const BARE_ALL = "bare.all";
export const BARE_SILENT = "bare.silent";

export const TEXT = ".".repeat(100);
export type Args = { readonly text: string };

export const BENCH_CLUSTER = defineCluster({
  urn: "com.acme.bench.v1",
  revision: 1,
  commands: [
    {
      name: COMMAND,
      class: "ephemeral",
      effect: "read",
      input: z.looseObject({ text: z.string() }),
      output: z.looseObject({ text: z.string() }),
    },
  ],
});

/** A login of the bench's broker: the password is the name. */
export type Login = { readonly url: string; readonly user: string };

export type CallServerSetup = {
  readonly url: string;
  /** Its login, which may serve these instances. */
  readonly user: string;
  readonly instances: readonly string[];
  /** Login and instance of the floor's responder, where this process is to be it. */
  readonly floor?: { readonly user: string; readonly instance: string };
  /** It answers the provisioner's reads too: artifacts, and a registry of its own instances. */
  readonly reads: boolean;
};
