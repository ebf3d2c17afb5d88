/**
 * The two subjects of a call (§13.2): what it is published on, and where its answer is heard.
 *
 * A program calls few commands, many times: all but the nonce is built and checked once for each of them.
 *
 * Invariants
 * 1. What comes out is what the grammar's own builders give, to the letter, and what they refuse is refused.
 * 2. No nonce is kept. So many commands at most: where there are more, all are forgotten and built again.
 */
import { type CallAddress, type Caller, Route, endpointSubjects } from "../protocol/endpoint/grammar.ts";

/** Commands and routes whose subjects are kept. */
const MAX_KEPT = 256;

/** Stands for one while the rest is built: as long as those that are drawn. */
const ANY_NONCE = "n".repeat(26);

type Subjects = { readonly request: string; readonly reply: string };

export function createCallSubjects(space: string, caller: Caller): (address: CallAddress, nonce: string) => Subjects {
  const rails = endpointSubjects(space);
  const kept = new Map<string, Subjects>();
  const build = (address: CallAddress, nonce: string): Subjects => ({
    request: rails.request(address, caller, nonce),
    reply: rails.replyTo(caller, nonce, address.endpoint),
  });
  return (address, nonce) => {
    const key = keyOf(address);
    if (key === undefined) return build(address, nonce);
    let heads = kept.get(key);
    if (heads === undefined) {
      if (kept.size >= MAX_KEPT) kept.clear();
      const { request, reply } = build(address, ANY_NONCE);
      heads = { request: request.slice(0, -ANY_NONCE.length), reply: reply.slice(0, -ANY_NONCE.length) };
      kept.set(key, heads);
    }
    return { request: `${heads.request}${nonce}`, reply: `${heads.reply}${nonce}` };
  };
}

/**
 * `undefined` for what is not kept: a target, of which there are many. A token that may stand in a subject holds
 * no space, so no two addresses have one key.
 */
function keyOf(address: CallAddress): string | undefined {
  const { route, endpoint, command, target } = address;
  const instance = address.route === Route.Inst ? address.instanceId : "";
  const isText = typeof endpoint === "string" && typeof command === "string" && typeof instance === "string";
  return target === undefined && isText ? `${route} ${endpoint} ${command} ${instance}` : undefined;
}
