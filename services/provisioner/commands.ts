/**
 * The provisioner's commands: the table of what it serves, by its contract. Who may call which stands in the
 * grants (`shared/grants/commands.ts`); the broker enforces it, and the handlers only narrow.
 */
import { ProvisionerCommand as Name } from "../../shared/grants/commands.ts";
import { PROVISIONER_CLUSTER } from "../../shared/protocol/endpoint/provisioner-contract.ts";
import { type HandlerTable, type Handlers, handlersOf } from "../../shared/serve/serve.ts";
import { callerView } from "./caller-view.ts";
import { channelSet } from "./channels.ts";
import { check } from "./check/check.ts";
import type { SpaceContext } from "./context.ts";
import { daemonEnter } from "./daemon-enter.ts";
import { deprovision, deprovisionComplete } from "./deprovision.ts";
import { groupsSet, settingsNow } from "./groups.ts";
import { limitsPreview, limitsSet, limitsShow } from "./limits.ts";
import { mint } from "./mint.ts";
import { channelPurge, historyPurge } from "./purge.ts";
import { register } from "./register.ts";
import { endpointAssign } from "./serving/assign.ts";

type ProvisionerHandlers = Handlers<typeof PROVISIONER_CLUSTER>;

export function provisionerHandlers(context: SpaceContext, instanceId: string): HandlerTable {
  // The grants and the contract name the same commands, or this does not type.
  const handlers: { readonly [N in Name]: ProvisionerHandlers[N] } = {
    [Name.Space]: async () => ({ settings: await settingsNow(context) }),
    [Name.Mint]: (args) => mint(context, instanceId, args),
    [Name.Deprovision]: (args) => deprovision(context, args),
    [Name.DeprovisionComplete]: (args) => deprovisionComplete(context, args),
    [Name.ChannelSet]: (args) => channelSet(context, args),
    [Name.ChannelPurge]: (args) => channelPurge(context, args),
    [Name.HistoryPurge]: () => historyPurge(context),
    [Name.LimitsShow]: () => limitsShow(context),
    [Name.LimitsSet]: (args) => limitsSet(context, args),
    [Name.LimitsPreview]: (args) => limitsPreview(context, args),
    [Name.GroupsSet]: (args) => groupsSet(context, args),
    [Name.Check]: shared(() => check(context)),
    [Name.CallerView]: (args, { caller }) => callerView(context, caller, args),
    [Name.Register]: (args, { caller }) => register(context, caller, args),
    [Name.DaemonEnter]: (args, { caller }) => daemonEnter(context, caller, args),
    [Name.EndpointAssign]: (args, { caller }) => endpointAssign(context, caller, args),
  };
  return handlersOf(PROVISIONER_CLUSTER, handlers);
}

/** One run for all who ask while it lasts: it reads the whole space, and anybody may ask who may see it. */
function shared<T>(run: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () =>
    (running ??= run().finally(() => {
      running = undefined;
    }));
}
