/** A server of the `call` bench: both sides in one process, so that both feel the same machine. Ends with its parent. */
import { randomBytes } from "node:crypto";
import { connect } from "@nats-io/transport-node";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { handlersOf, serveEndpoint } from "../../shared/serve/serve.ts";
import { artifactsOf, startReads } from "../support/foreign-endpoint.ts";
import { BARE_ALL, BARE_ONE, BENCH_CLUSTER, type CallServerSetup, ENDPOINT, SPACE } from "./call-contract.ts";
import { answerParent } from "./child.ts";

const EPOCH = 1;
const CONCURRENCY = 20_000;

answerParent(async ({ url, instances, reads }: CallServerSetup): Promise<unknown> => {
  const contract = compileContract([BENCH_CLUSTER], createValidators());
  const nc = await connect({ servers: url });
  const ids = Array.from({ length: instances }, () => drawLifecycleUid(randomBytes));
  for (const instanceId of ids) {
    await serveEndpoint({
      nc,
      space: SPACE,
      endpoint: ENDPOINT,
      instanceId,
      epoch: EPOCH,
      contract,
      handlers: handlersOf(BENCH_CLUSTER, { echo: ({ text }) => Promise.resolve({ text }) }),
      registrationRevision: () => 1,
      publicDescriptor: true,
      concurrency: CONCURRENCY,
      perCaller: CONCURRENCY,
      onServed: () => undefined,
      now: () => 0,
    });
    nc.subscribe(BARE_ALL, { callback: (_, message) => void message.respond(message.data) });
  }
  nc.subscribe(BARE_ONE, { queue: "bench", callback: (_, message) => void message.respond(message.data) });
  if (reads) {
    await startReads(nc, SPACE, {
      artifacts: artifactsOf(contract),
      endpoints: ids.map((instanceId) => ({
        endpoint: ENDPOINT,
        instanceId,
        owner: "local",
        registrationRevision: 1,
        clusterDigests: [...contract.clusterDigests],
        protocol: { v: 2 },
        epoch: EPOCH,
        state: "ready",
      })),
    });
  }
  await nc.flush();
  return undefined;
});
