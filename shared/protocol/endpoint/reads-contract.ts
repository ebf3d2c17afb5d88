/**
 * The mediated reads of the endpoint `delivery` (supplement A and E, decision H1): a cluster of their own, beside
 * what else that endpoint serves. Who may call which stands in the grants.
 */
import { defineCluster } from "../contract/declare.ts";
import * as shape from "./reads-shapes.ts";

const read = { class: "ephemeral", effect: "read" } as const;

export const READS_CLUSTER = defineCluster({
  urn: "ai.cotal.reads.v1",
  revision: 1,
  commands: [
    { name: "channels", ...read, input: shape.ChannelsArgs, output: shape.ChannelsAnswer },
    { name: "roster", ...read, input: shape.RosterArgs, output: shape.RosterAnswer },
    { name: "frontier", ...read, input: shape.FrontierArgs, output: shape.FrontierAnswer },
    { name: "history", ...read, input: shape.HistoryArgs, output: shape.HistoryAnswer },
    { name: "dm-history", ...read, input: shape.DmHistoryArgs, output: shape.HistoryAnswer },
    { name: "artifacts", ...read, input: shape.ArtifactsArgs, output: shape.ArtifactsAnswer },
    { name: "endpoints", ...read, input: shape.EndpointsArgs, output: shape.EndpointsAnswer },
    { name: "records", ...read, input: shape.RecordsArgs, output: shape.RecordsAnswer },
  ],
});
