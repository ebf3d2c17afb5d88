/**
 * A process that hosts an endpoint and can be killed at any moment of a call: its handler tells when it has
 * begun, waits to be told to go on, and tells when it is about to answer. Started by `hosted-process.ts`.
 */
import { once } from "node:events";
import { z } from "zod";
import { defineCluster, handlersOf, hostEndpoint } from "../../shared/endpoint/index.ts";

type Setup = { readonly url: string; readonly credential: string; readonly endpoint: string };

const WORK = defineCluster({
  urn: "com.example.work.v1",
  revision: 1,
  commands: [
    {
      name: "do",
      class: "ephemeral",
      effect: "write",
      input: z.strictObject({ id: z.string() }),
      output: z.strictObject({ id: z.string() }),
    },
  ],
});

const [{ url, credential, endpoint }] = (await once(process, "message")) as [Setup];
const host = await hostEndpoint(
  { servers: [url], credentials: { kind: "static", text: credential } },
  {
    endpoint,
    clusters: [WORK],
    publicDescriptor: true,
    handlers: handlersOf(WORK, {
      do: async ({ id }) => {
        process.send?.({ begun: id });
        await once(process, "message");
        return { id };
      },
    }),
  },
);
process.send?.({ ready: host.instanceId });
process.on("disconnect", () => process.exit(0));
