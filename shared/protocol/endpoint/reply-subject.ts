/**
 * Reply subjects (§13.2).
 *
 * Invariants
 * 1. A reply's subject follows from the authenticated subject of its request and from who answers.
 *    Nothing of a message has a say in it (the confused-deputy boundary).
 * 2. Who answered is read off the subject, never off the payload.
 */
import { form, joinSubject, type Values } from "./forms.ts";
import { type CallTail, railOf, railPrefix, readTail, splitRail, tailTokens } from "./rails.ts";

/** One incarnation of an instance: the process that answers. */
export type Incarnation = { readonly instanceId: string; readonly epoch: number };

export type EndpointReplySubject = CallTail & Values<"endpoint" | "instanceId" | "epoch"> & { readonly space: string };

const REPLY = "reply";
const RESPONDER = form("endpoint", "instanceId", "epoch");

/** Where the answer to a request goes: on the rail on which it came, to the caller that its subject names. */
export function deriveReply(
  request: CallTail & { readonly space: string; readonly endpoint: string },
  { instanceId, epoch }: Incarnation,
): string {
  return joinSubject([
    ...railPrefix(request.space, railOf(request)),
    REPLY,
    ...RESPONDER.write({ endpoint: request.endpoint, instanceId, epoch }),
    ...tailTokens(request),
  ]);
}

/** Splits a reply subject; `undefined` for every other shape. */
export function parseReplySubject(subject: string): EndpointReplySubject | undefined {
  const split = splitRail(subject);
  if (split === undefined || split.rest[0] !== REPLY) return undefined;
  const responder = RESPONDER.read(split.rest.slice(1, 4));
  const tail = readTail(split.rest.slice(4), split.rail);
  if (responder === undefined || tail === undefined) return undefined;
  return { space: split.space, ...responder, ...tail };
}
