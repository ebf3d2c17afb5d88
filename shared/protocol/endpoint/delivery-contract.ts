/** The contract of the endpoint `delivery` (supplement A). Who may call what stands in the grants. */
import { z } from "zod";
import { AnycastStatus } from "../chat/anycast.ts";
import { defineCluster } from "../contract/declare.ts";
import * as shape from "./delivery-shapes.ts";
import * as proof from "./proof-shapes.ts";

const read = { class: "ephemeral", effect: "read" } as const;
const write = { class: "ephemeral", effect: "write" } as const;

export const DELIVERY_CLUSTER = defineCluster({
  urn: "ai.cotal.delivery.v1",
  revision: 4,
  commands: [
    { name: "evict-principals", ...write, input: shape.PrincipalsArgs, output: shape.PrincipalsAnswer },
    { name: "durable-join", ...write, input: shape.DurableJoinArgs, output: shape.Membership },
    { name: "durable-leave", ...write, input: shape.DurableLeaveArgs, output: shape.DurableLeaveAnswer },
    { name: "durable-list", ...read, input: shape.DurableListArgs, output: shape.DurableListAnswer },
    { name: "principal-liveness", ...read, input: shape.PrincipalsArgs, output: shape.PrincipalsAnswer },
    { name: "anycast-status", ...read, input: shape.AnycastArgs, output: AnycastStatus },
    { name: "anycast-cancel", ...write, input: shape.AnycastArgs, output: AnycastStatus },
    { name: "anycast-takes", ...read, input: shape.AnycastTakesArgs, output: shape.AnycastTakesAnswer },
    { name: "acl-swept", ...read, input: shape.AclSweptArgs, output: shape.AclSweptAnswer },
    { name: "pending", ...read, input: proof.PendingArgs, output: proof.PendingAnswer },
    { name: "groups-show", ...read, input: shape.GroupsShowArgs, output: shape.GroupsShowAnswer },
    { name: "proof", ...read, input: proof.ProofArgs, output: proof.ProofAnswer },
    { name: "members", ...read, input: shape.MembersArgs, output: z.union([shape.MembersAnswer, shape.ReachedAnswer]) },
    { name: "reload-creds", ...write, input: shape.ReloadCredsArgs, output: shape.ReloadCredsAnswer },
  ],
});
