/**
 * Reply subjects (§13.2).
 *
 * Invariants
 * 1. A reply's subject follows from the authenticated subject of its request and from who answers.
 *    Nothing of a message has a say in it (the confused-deputy boundary).
 * 2. Who answered is read off the subject, never off the payload.
 */
import { form, joinSubject, type Values } from "./forms.ts";
import { byHead } from "./heads.ts";
import { type CallTail, type CallerTail, Rail, railOf, railPrefix, readTail, splitRail, tailTokens } from "./rails.ts";

/** One incarnation of an instance: the process that answers. */
export type Incarnation = { readonly instanceId: string; readonly epoch: number };

type Responder = Values<"endpoint" | "instanceId" | "epoch"> & { readonly space: string };
export type EndpointReplySubject = CallTail & Responder;

const REPLY = "reply";
const RESPONDER = form("endpoint", "instanceId", "epoch");

/** Where one incarnation's answers go: on the rail on which each came, to the caller that its subject names. */
export function replyWriter(
  space: string,
  endpoint: string,
  { instanceId, epoch }: Incarnation,
): (request: CallTail) => string {
  const responder = RESPONDER.write({ endpoint, instanceId, epoch });
  const head = (rail: Rail): string => [...railPrefix(space, rail), REPLY, ...responder].join(".");
  const heads = { [Rail.Legacy]: head(Rail.Legacy), [Rail.Versioned]: head(Rail.Versioned) };
  return (request) => joinSubject([heads[railOf(request)], ...tailTokens(request)]);
}

/** The same for one request. */
export function deriveReply(
  request: CallTail & { readonly space: string; readonly endpoint: string },
  by: Incarnation,
): string {
  return replyWriter(request.space, request.endpoint, by)(request);
}

/** Splits a reply subject; `undefined` for every other shape. */
export const parseReplySubject: (subject: string) => EndpointReplySubject | undefined = byHead(readHead);

function readHead(head: string): (Responder & CallerTail) | undefined {
  const split = splitRail(head);
  if (split === undefined || split.rest[0] !== REPLY) return undefined;
  const responder = RESPONDER.read(split.rest.slice(1, 4));
  const tail = readTail(split.rest.slice(4), split.rail);
  if (responder === undefined || tail === undefined) return undefined;
  return { space: split.space, ...responder, ...tail };
}
