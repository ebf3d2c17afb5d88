/** A server of the `call` bench: both sides in one process, so that both feel the same machine. Ends with its parent. */
import { type NatsConnection, connect } from "@nats-io/transport-node";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { handlersOf, serveEndpoint } from "../../shared/serve/serve.ts";
import { artifactsOf, startReads } from "../support/foreign-endpoint.ts";
import { serveFloor } from "./call-bare.ts";
import {
  BARE_ALL,
  BARE_ONE,
  BENCH_CLUSTER,
  COMMAND,
  type CallServerSetup,
  ENDPOINT,
  EPOCH,
  SPACE,
} from "./call-contract.ts";
import { OPEN_USER } from "./call-world.ts";
import { answerParent } from "./child.ts";

const CONCURRENCY = 20_000;

answerParent(async ({ url, user, instances, floor, reads }: CallServerSetup): Promise<unknown> => {
  const login = (name: string): Promise<NatsConnection> =>
    connect({ servers: url, user: name, pass: name, noAsyncTraces: true });
  const contract = compileContract([BENCH_CLUSTER], createValidators());
  const nc = await login(user);
  const open = await login(OPEN_USER);
  for (const instanceId of instances) {
    await serveEndpoint({
      nc,
      space: SPACE,
      endpoint: ENDPOINT,
      instanceId,
      epoch: EPOCH,
      contract,
      handlers: handlersOf(BENCH_CLUSTER, { [COMMAND]: ({ text }) => Promise.resolve({ text }) }),
      registrationRevision: () => 1,
      publicDescriptor: true,
      concurrency: CONCURRENCY,
      perCaller: CONCURRENCY,
      onServed: () => undefined,
      now: () => 0,
    });
    open.subscribe(BARE_ALL, { callback: (_, message) => void message.respond(message.data) });
  }
  open.subscribe(BARE_ONE, { queue: "bench", callback: (_, message) => void message.respond(message.data) });
  if (floor !== undefined) await serveFloor(await login(floor.user), floor.instance);
  if (reads) {
    await startReads(open, SPACE, {
      artifacts: artifactsOf(contract),
      endpoints: instances.map((instanceId) => ({
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
  await open.flush();
  return undefined;
});
