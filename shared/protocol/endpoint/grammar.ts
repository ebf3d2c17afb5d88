/**
 * The endpoint rails (§13.2), as far as the first rail needs them: untargeted requests on the class
 * and instance rails, and the derived reply.
 *
 * Invariants
 * 1. A reply subject is derived from the authenticated request subject, never from what a message
 *    claims (§13.2, the confused-deputy boundary).
 * 2. Discrimination is by the reserved mode tokens, never by counting alone: a targeted form is not
 *    parsed as an untargeted one, because an owner token is never a bare mode word.
 * 3. No subject is longer than 1024 bytes.
 */
import {
  COMMAND_TOKEN,
  ENDPOINT_LABEL,
  ID_TOKEN,
  LIFECYCLE_UID,
  MAX_SUBJECT_BYTES,
  OWNER_TOKEN,
  PRINCIPAL_TOKEN,
  REQUEST_NONCE,
} from "../base/grammar.ts";
import { badRequest } from "../base/errors.ts";
import { type Principal, dotForm } from "../base/principals.ts";
import { ROOT, spaceToken } from "../base/subjects.ts";

/** The reserved authorization modes (§13.2; seven, decision H5). */
export const AuthzMode = {
  Self: "self",
  Owner: "owner",
  Any: "any",
  Child: "child",
  Ledger: "ledger",
  Handle: "handle",
  Exact: "exact",
} as const;
const MODES: ReadonlySet<string> = new Set(Object.values(AuthzMode));

/** Endpoint names reserved for this project's own daemons (architecture §8). */
export const EndpointName = {
  Auth: "auth",
  Delivery: "delivery",
  Provisioner: "provisioner",
  Manager: "manager",
  Workflow: "workflow",
  Serving: "serving",
} as const;
export type EndpointName = (typeof EndpointName)[keyof typeof EndpointName];

/** Command names every endpoint keeps for the contract itself (decision H39). */
export const RESERVED_COMMANDS = ["describe", "cancel", "lease", "commit", "resume"] as const;

/** The caller of a request: principal and lifecycle, forge-locked in the subject. */
export type Caller = { readonly principal: Principal; readonly uid: string };

/** An endpoint name as a subject token: `.` becomes `_` (§13.2). */
export function endpointToken(name: string): string {
  if (!isEndpointName(name)) throw badRequest(`${JSON.stringify(name.slice(0, 80))} is not an endpoint name`);
  return name.replaceAll(".", "_");
}

/** True for a name of an endpoint (§13.2). */
export function isEndpointName(name: string): boolean {
  return name.length <= 64 && name.split(".").every((label) => ENDPOINT_LABEL.test(label));
}

/** Back from the token; `_` can't stand in a label, so the mapping is exact. */
export function endpointName(token: string): string {
  return token.replaceAll("_", ".");
}

export const Route = { One: "one", All: "all", Inst: "inst" } as const;
export type Route = (typeof Route)[keyof typeof Route];

export type EndpointRequestSubject = {
  readonly route: Route;
  readonly space: string;
  readonly endpoint: string;
  /** Only on the instance rail. */
  readonly instanceId?: string;
  readonly command: string;
  readonly owner: string;
  readonly actor: string;
  readonly uid: string;
  readonly nonce: string;
};

/** Builders of one space's endpoint subjects. */
export function endpointSubjects(space: string) {
  const prefix = `${ROOT}.${spaceToken(space)}.ep`;
  const caller = (c: Caller) => `${dotForm(c.principal)}.${c.uid}`;
  return {
    /** Untargeted call to any instance of the class. */
    one: (endpoint: string, command: string, from: Caller, nonce: string) =>
      bounded(`${prefix}.one.${endpointToken(endpoint)}.${checkCommand(command)}.${caller(from)}.${nonce}`),
    /** Untargeted call to one instance. */
    inst: (endpoint: string, instanceId: string, command: string, from: Caller, nonce: string) =>
      bounded(
        `${prefix}.inst.${endpointToken(endpoint)}.${instanceId}.${checkCommand(command)}.${caller(from)}.${nonce}`,
      ),
    /** Publish grant of one command on the class rail: caller pinned, only the nonce free. */
    oneGrant: (endpoint: string, command: string, from: Caller) =>
      `${prefix}.one.${endpoint === "*" ? "*" : endpointToken(endpoint)}.${checkCommand(command)}.${caller(from)}.*`,
    /** The same on the rail of one instance. */
    instGrant: (endpoint: string, instanceId: string, command: string, from: Caller) =>
      `${prefix}.inst.${endpointToken(endpoint)}.${checkInstance(instanceId)}.${checkCommand(command)}.${caller(from)}.*`,
    /** One side of one session (§13.6): `in` is what its caller publishes, `out` what it hears. */
    session: (endpoint: string, sessionId: string, epoch: number, side: "in" | "out") => {
      const isSession = ID_TOKEN.test(sessionId) && Number.isSafeInteger(epoch) && epoch >= 0;
      if (!isSession) throw badRequest("the session's id or epoch is malformed");
      return bounded(`${prefix}s.${endpointToken(endpoint)}.${sessionId}.${epoch}.${side}`);
    },
    /** Where a caller reads one answer. */
    replyTo: (from: Caller, nonce: string) => `${prefix}.reply.*.*.*.${caller(from)}.${nonce}`,
    /** The caller's whole reply rail: exact arity, so its grant carries a paired deny. */
    replyGrant: (from: Caller) => `${prefix}.reply.*.*.*.${caller(from)}.*`,
    /** Serve subscription of one command on the class rail; queue-qualified only. */
    serveOne: (endpoint: string, command: string) =>
      `${prefix}.one.${endpointToken(endpoint)}.${checkCommand(command)}.>`,
    serveInst: (endpoint: string, instanceId: string, command: string) =>
      `${prefix}.inst.${endpointToken(endpoint)}.${instanceId}.${checkCommand(command)}.>`,
    /** Publish grant of a responder: own triple and epoch pinned. */
    serveReply: (endpoint: string, instanceId: string, epoch: number) =>
      `${prefix}.reply.${endpointToken(endpoint)}.${instanceId}.${epoch}.*.*.*.*`,
    /** The reply of one request, from its own subject and the responder's identity. */
    reply: (request: EndpointRequestSubject, instanceId: string, epoch: number) =>
      `${prefix}.reply.${endpointToken(request.endpoint)}.${instanceId}.${epoch}.${request.owner}.${request.actor}.${request.uid}.${request.nonce}`,
  } as const;
}

function checkCommand(command: string): string {
  if (!COMMAND_TOKEN.test(command)) throw badRequest(`${JSON.stringify(command.slice(0, 60))} is not a command name`);
  return command;
}

function checkInstance(instanceId: string): string {
  if (!LIFECYCLE_UID.test(instanceId)) throw badRequest("the instance id is malformed");
  return instanceId;
}

function bounded(subject: string): string {
  if (Buffer.byteLength(subject) > MAX_SUBJECT_BYTES) throw badRequest("the subject is longer than 1024 bytes");
  return subject;
}

/** Splits an untargeted request subject; `undefined` for every other shape. */
export function parseRequestSubject(subject: string): EndpointRequestSubject | undefined {
  if (subject.length > MAX_SUBJECT_BYTES) return undefined;
  const [root, space, ep, route, ...rest] = subject.split(".");
  if (root !== ROOT || !space || ep !== "ep") return undefined;
  if (route === Route.Inst) {
    const [endpoint, instanceId, ...tail] = rest;
    if (instanceId === undefined || !LIFECYCLE_UID.test(instanceId)) return undefined;
    const parsed = untargeted(Route.Inst, space, endpoint, tail);
    return parsed === undefined ? undefined : { ...parsed, instanceId };
  }
  if (route !== Route.One && route !== Route.All) return undefined;
  const [endpoint, ...tail] = rest;
  return untargeted(route, space, endpoint, tail);
}

function untargeted(
  route: Route,
  space: string,
  endpoint: string | undefined,
  tail: readonly string[],
): EndpointRequestSubject | undefined {
  const [command, owner, actor, uid, nonce] = tail;
  if (tail.length !== 5 || endpoint === undefined || command === undefined) return undefined;
  if (owner === undefined || actor === undefined || uid === undefined || nonce === undefined) return undefined;
  if (MODES.has(owner) || !OWNER_TOKEN.test(owner) || !PRINCIPAL_TOKEN.test(actor)) return undefined;
  if (!COMMAND_TOKEN.test(command) || !LIFECYCLE_UID.test(uid) || !REQUEST_NONCE.test(nonce)) return undefined;
  // A token that is no name would make the derived reply unbuildable.
  const name = endpointName(endpoint);
  if (!isEndpointName(name)) return undefined;
  return { route, space, endpoint: name, command, owner, actor, uid, nonce };
}

/** Who answered, read off the broker-authenticated reply subject (§13.2). */
export function parseReplySubject(
  subject: string,
): { endpoint: string; instanceId: string; epoch: number } | undefined {
  const tokens = subject.split(".");
  if (tokens.length !== 11 || tokens[0] !== ROOT || tokens[2] !== "ep" || tokens[3] !== "reply") return undefined;
  const [endpoint, instanceId, epoch] = tokens.slice(4, 7);
  if (!endpoint || !instanceId || !epoch || !/^\d{1,15}$/.test(epoch)) return undefined;
  const name = endpointName(endpoint);
  return isEndpointName(name) ? { endpoint: name, instanceId, epoch: Number(epoch) } : undefined;
}
