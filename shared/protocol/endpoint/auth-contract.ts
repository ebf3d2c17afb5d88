/** The contract of the endpoint `auth` (supplement A): the actor ledger, and rows that another daemon needs. */
import { defineCluster } from "../contract/declare.ts";
import * as shape from "./auth-shapes.ts";

const read = { class: "ephemeral", effect: "read" } as const;
const write = { class: "ephemeral", effect: "write" } as const;

export const AUTH_CLUSTER = defineCluster({
  urn: "ai.cotal.auth.v1",
  revision: 1,
  commands: [
    { name: "actor-grant", ...write, input: shape.ActorGrantArgs, output: shape.ActorAnswer },
    { name: "actor-narrow", ...write, input: shape.ActorNarrowArgs, output: shape.ActorAnswer },
    { name: "actor-revoke", ...write, input: shape.ActorRevokeArgs, output: shape.ActorRevokeAnswer },
    { name: "actor-list", ...read, input: shape.ActorListArgs, output: shape.ActorListAnswer },
    { name: "retire-lifecycle", ...write, input: shape.RetireLifecycleArgs, output: shape.RetireLifecycleAnswer },
    { name: "takeover-lifecycle", ...write, input: shape.TakeoverLifecycleArgs, output: shape.TakeoverLifecycleAnswer },
    { name: "operation-list", ...read, input: shape.OperationListArgs, output: shape.OperationListAnswer },
    { name: "daemon-enter", ...write, input: shape.DaemonEnterArgs, output: shape.DaemonEnterAnswer },
    { name: "serving", ...write, input: shape.ServingArgs, output: shape.ServingAnswer },
    { name: "enrol", ...write, input: shape.EnrolArgs, output: shape.EnrolAnswer },
    { name: "chat-open", ...write, input: shape.ChatOpenArgs, output: shape.ChatOpenAnswer },
  ],
});
