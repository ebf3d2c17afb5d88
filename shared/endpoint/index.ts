/** What a service of one's own is written with: declare clusters, handle their commands, host them. */
export { type ClusterDeclaration, defineCluster } from "../protocol/contract/declare.ts";
export { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
export { AuthzMode } from "../protocol/endpoint/modes.ts";
export { type CallContext, type Guard, type HandlerTable, type Handlers, handlersOf } from "../serve/handlers.ts";
export { type Host, type HostedEndpoint, hostEndpoint } from "./host.ts";
