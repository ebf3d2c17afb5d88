/**
 * The contract of the endpoint `provisioner` (supplement A): every command with its shapes. Who may call
 * which stands in the grants.
 */
import { defineCluster } from "../contract/declare.ts";
import { DaemonEnterAnswer, DaemonEnterArgs } from "./auth-shapes.ts";
import * as view from "./caller-view-shapes.ts";
import * as shape from "./provisioner-shapes.ts";

const read = { class: "ephemeral", effect: "read" } as const;
const write = { class: "ephemeral", effect: "write" } as const;

export const PROVISIONER_CLUSTER = defineCluster({
  urn: "ai.cotal.provisioner.v2",
  revision: 1,
  commands: [
    { name: "space", ...read, input: shape.NoArgs, output: shape.SpaceAnswer },
    { name: "mint", ...write, input: shape.MintArgs, output: shape.MintAnswer },
    { name: "deprovision", ...write, input: shape.DeprovisionArgs, output: shape.DeprovisionAnswer },
    { name: "deprovision-complete", ...write, input: shape.DeprovisionCompleteArgs, output: shape.Done },
    { name: "channel-set", ...write, input: shape.ChannelSetArgs, output: shape.ChannelSetAnswer },
    { name: "channel-purge", ...write, input: shape.ChannelPurgeArgs, output: shape.PurgeAnswer },
    { name: "history-purge", ...write, input: shape.NoArgs, output: shape.PurgeAnswer },
    { name: "limits-show", ...read, input: shape.NoArgs, output: shape.LimitsAnswer },
    { name: "limits-set", ...write, input: shape.LimitsSetArgs, output: shape.LimitsAnswer },
    { name: "limits-preview", ...read, input: shape.LimitsSetArgs, output: shape.LimitsPreviewAnswer },
    { name: "groups-set", ...write, input: shape.GroupsSetArgs, output: shape.GroupsSetAnswer },
    { name: "check", ...read, input: shape.NoArgs, output: shape.CheckAnswer },
    { name: "caller-view", ...read, input: view.CallerViewArgs, output: view.CallerViewAnswer },
    { name: "daemon-enter", ...write, input: DaemonEnterArgs, output: DaemonEnterAnswer },
    { name: "register", ...write, input: shape.RegisterArgs, output: shape.RegisterAnswer },
    { name: "endpoint-assign", ...write, input: shape.EndpointAssignArgs, output: shape.EndpointAssignAnswer },
  ],
});
