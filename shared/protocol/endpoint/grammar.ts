/**
 * The endpoint rails of one space (§13.2): what the rest of the project builds and parses with.
 *
 * Siblings: `names.ts` endpoint and command names, `rails.ts` the two rails, `modes.ts` the target block,
 * `request-subject.ts` and `reply-subject.ts` the exact forms, `rail-grants.ts` the patterns,
 * `planes.ts` the subjects of events, facts, submissions and the other planes.
 */
import { Rail, type Caller, tailOf } from "./rails.ts";
import { type Incarnation, replyWriter } from "./reply-subject.ts";
import { type CallAddress, Route, requestSubject } from "./request-subject.ts";
import { callGrant, replyRead, serveRail, serveReply, serveSubscriptions } from "./rail-grants.ts";
import { planeSubject } from "./planes.ts";

export {
  DESCRIBE,
  EndpointName,
  RESERVED_COMMANDS,
  endpointName,
  endpointToken,
  isCoreEndpoint,
  isEndpointName,
  isOwnCommand,
} from "./names.ts";
export { AuthzMode, type TargetBlock } from "./modes.ts";
export { Rail, callerOf, type Caller } from "./rails.ts";
export { type CallAddress, type EndpointRequestSubject, Route, parseRequestSubject } from "./request-subject.ts";
export { type EndpointReplySubject, type Incarnation, deriveReply, parseReplySubject } from "./reply-subject.ts";
export type { ServeSubscription } from "./rail-grants.ts";

/** Builders of one space's endpoint subjects. The caller's generation decides the rail. */
export function endpointSubjects(space: string) {
  const request = (address: CallAddress, from: Caller, nonce: string): string =>
    requestSubject({ space, ...address, ...tailOf(from, nonce) });
  return {
    /** Any form: route, target and rail. */
    request,
    /** Untargeted call to any instance of the class. */
    one: (endpoint: string, command: string, from: Caller, nonce: string) =>
      request({ route: Route.One, endpoint, command }, from, nonce),
    /** Untargeted call to one instance. */
    inst: (endpoint: string, instanceId: string, command: string, from: Caller, nonce: string) =>
      request({ route: Route.Inst, endpoint, instanceId, command }, from, nonce),
    /** Publish grant of one command in one form. */
    grant: (address: CallAddress, from: Caller) => callGrant(space, from, address),
    /** Publish grant of one untargeted command on the class rail: caller pinned, only the nonce free. */
    oneGrant: (endpoint: string, command: string, from: Caller) =>
      callGrant(space, from, { route: Route.One, endpoint, command }),
    /** The same on the rail of one instance. */
    instGrant: (endpoint: string, instanceId: string, command: string, from: Caller) =>
      callGrant(space, from, { route: Route.Inst, endpoint, instanceId, command }),
    /** One side of one session (§13.6): `in` is what its caller publishes, `out` what it hears. */
    session: (endpoint: string, sessionId: string, epoch: number, side: "in" | "out") =>
      planeSubject(space, { plane: "eps", endpoint, sessionId, epoch, side }),
    /** Where a caller reads one answer; of whatever instance, and of one endpoint where it is said. */
    replyTo: (from: Caller, nonce: string, endpoint?: string) => replyRead(space, from, nonce, endpoint),
    /** The caller's whole reply rail: exact arity, so its grant carries a paired deny. */
    replyGrant: (from: Caller) => replyRead(space, from),
    /** Serve subscription of one command on the class rail; queue-qualified only. */
    serveOne: (endpoint: string, command: string) =>
      serveRail(space, Rail.Legacy, { route: Route.One, endpoint, command }),
    serveInst: (endpoint: string, instanceId: string, command: string) =>
      serveRail(space, Rail.Legacy, { route: Route.Inst, instanceId, endpoint, command }),
    /** Everything that serves one command: three routes on both rails, with the queue where there is one. */
    serve: (endpoint: string, instanceId: string, command: string) =>
      serveSubscriptions(space, endpoint, instanceId, command),
    /** Publish grant of a responder: own triple and epoch pinned. */
    serveReply: (endpoint: string, instanceId: string, epoch: number) =>
      serveReply(space, Rail.Legacy, endpoint, { instanceId, epoch }),
    /** The same on both rails. */
    serveReplies: (endpoint: string, instanceId: string, epoch: number) =>
      Object.values(Rail).map((rail) => serveReply(space, rail, endpoint, { instanceId, epoch })),
    /** Where a responder's replies go, each from its request's own subject. */
    replies: (endpoint: string, by: Incarnation) => replyWriter(space, endpoint, by),
  } as const;
}
