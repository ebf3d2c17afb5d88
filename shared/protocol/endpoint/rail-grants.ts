/**
 * Patterns of the endpoint rails: what a grant or a subscription may say (§13.9, supplement E).
 *
 * Invariants
 * 1. A caller's row pins its triple, and its generation on the versioned rail; only the nonce is free.
 *    Exact arity: no tail `>`. A subscribe row that ends in `*` needs the deny beside it (decision H16),
 *    which the permissions of a credential bring.
 * 2. `*` as endpoint exists for `describe` on the class rail alone (decision H30).
 * 3. A server's row names one command: never a bare tail across commands. The class rail is subscribed
 *    with the queue of the endpoint's own name and not otherwise (§13.2).
 */
import { badRequest } from "../base/errors.ts";
import { form, joinSubject, writeToken } from "./forms.ts";
import { grantBlockTokens } from "./modes.ts";
import { DESCRIBE, endpointToken } from "./names.ts";
import { type Caller, Rail, callerTokens, railOf, railPrefix } from "./rails.ts";
import type { Incarnation } from "./reply-subject.ts";
import { type CallAddress, type CommandAddress, Route, type RouteTo } from "./request-subject.ts";

const RESPONDER = form("endpoint", "instanceId", "epoch");

/** Publish grant of one command in one form. */
export function callGrant(space: string, caller: Caller, call: CallAddress): string {
  const instance = call.route === Route.Inst ? [writeToken("instanceId", call.instanceId)] : [];
  return joinSubject([
    ...railPrefix(space, railOf(caller)),
    writeToken("route", call.route),
    grantedEndpoint(call),
    ...instance,
    writeToken("command", call.command),
    ...grantBlockTokens(call.target),
    ...callerTokens(caller),
    "*",
  ]);
}

function grantedEndpoint({ route, endpoint, command, target }: CallAddress): string {
  if (endpoint !== "*") return endpointToken(endpoint);
  const isDefault = command === DESCRIBE && route === Route.One && target === undefined;
  if (!isDefault) throw badRequest("a grant names its endpoint", "only describe on the class rail is for all of them");
  return endpoint;
}

/** The caller's whole reply rail, or one exact nonce of it; from one endpoint, if it is said. */
export function replyRead(space: string, caller: Caller, nonce?: string, endpoint?: string): string {
  const first = endpoint === undefined ? "*" : endpointToken(endpoint);
  const last = nonce === undefined ? "*" : writeToken("nonce", nonce);
  return joinSubject([...railPrefix(space, railOf(caller)), "reply", first, "*", "*", ...callerTokens(caller), last]);
}

/** What a server subscribes to; `queue` where there is one is no choice. */
export type ServeSubscription = { readonly route: Route; readonly subject: string; readonly queue?: string };

/** Subscription of one command on one route of one rail: every form of target, every caller. */
export function serveRail(space: string, rail: Rail, at: CommandAddress): string {
  const instance = at.route === Route.Inst ? [writeToken("instanceId", at.instanceId)] : [];
  return joinSubject([
    ...railPrefix(space, rail),
    writeToken("route", at.route),
    endpointToken(at.endpoint),
    ...instance,
    writeToken("command", at.command),
    ">",
  ]);
}

/** All that serves one command: three routes on both rails. */
export function serveSubscriptions(
  space: string,
  endpoint: string,
  instanceId: string,
  command: string,
): ServeSubscription[] {
  const queue = endpointToken(endpoint);
  const routes: RouteTo[] = [{ route: Route.One }, { route: Route.All }, { route: Route.Inst, instanceId }];
  return Object.values(Rail).flatMap((rail) =>
    routes.map((to) => ({
      route: to.route,
      subject: serveRail(space, rail, { ...to, endpoint, command }),
      ...(to.route === Route.One ? { queue } : {}),
    })),
  );
}

/** Publish grant of one incarnation for its replies on one rail: its own triple pinned, the caller free. */
export function serveReply(space: string, rail: Rail, endpoint: string, { instanceId, epoch }: Incarnation): string {
  const tail = rail === Rail.Versioned ? ["*", "*", "*", "*", "*"] : ["*", "*", "*", "*"];
  return joinSubject([
    ...railPrefix(space, rail),
    "reply",
    ...RESPONDER.write({ endpoint, instanceId, epoch }),
    ...tail,
  ]);
}
