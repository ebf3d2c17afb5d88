/**
 * Serving a space that was taken up: registered, its record writer bound, then heard.
 *
 * Invariant: what is found in the records leads to what is served.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../../shared/broker/connect.ts";
import { DESK_COMMANDS, ProvisionerCommand } from "../../shared/grants/commands.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type ServedEndpoint, serveEndpoint } from "../../shared/serve/serve.ts";
import { provisionerHandlers } from "./commands.ts";
import type { SpaceContext } from "./context.ts";
import type { OpenSpaceOptions } from "./open-options.ts";
import { startRecordWriter } from "./record-writer.ts";
import { registerInstance, writeStatus } from "./service-records.ts";

const isDesk = (command: string): boolean => DESK_COMMANDS.some((name) => name === command);

/** Commands of one lane share places: what any member may ask takes none from the operator or from a daemon (decision 44). */
export const provisionerLane = (command: string): string =>
  isDesk(command) ? "desk" : command === ProvisionerCommand.DaemonEnter ? "daemons" : "members";

/** A stop waits no longer for the word that it stops. */
const FAREWELL_MS = 1_000;

/** Registers, serves, and says so. */
export async function serve(
  options: OpenSpaceOptions,
  { front, desk }: { readonly front: Connection; readonly desk: Connection },
  context: SpaceContext,
  { owner, instanceId, epoch }: { readonly owner: string; readonly instanceId: string; readonly epoch: number },
): Promise<{ readonly epoch: number; readonly stopIntake: ServedEndpoint["stop"] }> {
  const endpoint = EndpointName.Provisioner;
  const instance = { endpoint, instanceId, owner };
  const registrationRevision = await registerInstance(context, instance);
  const say = (state: string) =>
    writeStatus(context, instance, { epoch, state, observedSpecRevision: registrationRevision });
  const recording = startRecordWriter(context, options);
  await recording.begun;
  const served = await serveEndpoint({
    nc: front.nc,
    heardOn: (command) => (isDesk(command) ? desk.nc : front.nc),
    space: options.space,
    endpoint,
    instanceId,
    epoch,
    contract: ownContract(endpoint),
    handlers: provisionerHandlers(context, instanceId),
    registrationRevision: () => registrationRevision,
    publicDescriptor: true,
    lane: provisionerLane,
    concurrency: options.concurrency,
    perCaller: options.perCaller,
    onServed: options.onServed,
    now: () => performance.now(),
  });
  await say("ready");
  return {
    epoch,
    stopIntake: async () => {
      await Promise.all([served.stop(), recording.stop()]);
      // A listing that says "ready" a little longer is no fault; a stop that waits for the store would be.
      const said = say("stopped").catch(() => undefined);
      await Promise.race([said, sleep(FAREWELL_MS, undefined, { ref: false })]);
    },
  };
}
