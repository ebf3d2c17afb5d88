/**
 * A member's side of proof of delivery: what waits for it, and where a message of its own is.
 *
 * Invariant: recipients come in pages, and all of them are fetched, up to so many; `whole` says whether that was all.
 */
import { DeliveryCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import { ProofAnswer, type ProofArgs, type TracedMessage } from "../protocol/endpoint/proof-shapes.ts";
import type { Call } from "./caller.ts";
import type { Identity } from "./identity.ts";
import type { Proofs } from "./session-types.ts";

/** Of one message; 64 recipients each. */
const MOST_PAGES = 160;

type About<A extends ProofAnswer["about"]> = Extract<ProofAnswer, { readonly about: A }>;

export function createProofs(call: Call, mode: Identity["mode"], deadlineMs: number): Proofs {
  const ask = async <A extends ProofAnswer["about"]>(about: A, args: ProofArgs): Promise<About<A>> => {
    if (mode === "open") throw noProof();
    const { data } = await call(EndpointName.Delivery, DeliveryCommand.Proof, args, { deadlineMs });
    const answer = ProofAnswer.safeParse(data);
    if (answer.success && isAbout(answer.data, about)) return answer.data;
    throw new CotalError(ErrorCode.Internal, "the answer to proof does not have the shape of one", {
      outcome: Outcome.Executed,
      next: "check that the daemons and this client are of one version",
    });
  };
  /** The same message with the recipients behind those that are told. */
  const completed = async (message: TracedMessage, id: string): Promise<TracedMessage> => {
    if (message.kind !== "chat" || !message.recipients.shown) return message;
    const list = [...message.recipients.list];
    let { after, whole } = message.recipients;
    for (let pages = 1; after !== undefined && pages < MOST_PAGES; pages += 1) {
      const { found } = await ask("message", { about: "message", id, kind: "chat", seq: message.seq, after });
      const [next] = found;
      const more = next?.kind === "chat" && next.recipients.shown ? next.recipients : undefined;
      list.push(...(more?.list ?? []));
      whole &&= more?.whole === true;
      after = more?.after;
    }
    return { ...message, recipients: { shown: true, list, whole: whole && after === undefined } };
  };
  return {
    pending: () => ask("inbox", { about: "inbox" }),
    trace: async (message) => {
      const { id, kind, seq } = message;
      const place = kind === undefined || seq === undefined ? {} : { kind, seq };
      const answer = await ask("message", { about: "message", id, ...place });
      const found: TracedMessage[] = [];
      for (const one of answer.found) found.push(await completed(one, id));
      return { ...answer, found };
    },
  };
}

function isAbout<A extends ProofAnswer["about"]>(answer: ProofAnswer, about: A): answer is About<A> {
  return answer.about === about;
}

function noProof(): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, "an open space keeps no proof of delivery", {
    outcome: Outcome.NotExecuted,
    next: "ask the receiver; a space with credentials keeps one",
  });
}
