/**
 * The command `proof`: what waits for the caller, and where a message of its own is.
 *
 * Invariant: nothing of anybody else's is looked for. The caller's own subjects, which the broker stamps, are all
 * that is searched; what is told of recipients is told by `traced.ts`, within what the caller may know.
 */
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { Looked, ProofAnswer, ProofArgs, TracedMessage } from "../../../shared/protocol/endpoint/proof-shapes.ts";
import { SentKind } from "../../../shared/protocol/endpoint/proof-shapes.ts";
import type { StoredEntry } from "../../../shared/broker/reads.ts";
import { ownPending } from "./pending.ts";
import { ownAt, railsOf, searchId } from "./search.ts";
import { momentOf } from "./tiers.ts";
import { type TraceParts, recordedAsks, tracedAsk, tracedChat, tracedDm } from "./traced.ts";

type Placed = Extract<ProofArgs, { readonly seq: number }>;

export async function proofOf(
  parts: TraceParts,
  caller: Caller,
  args: ProofArgs,
  signal: AbortSignal,
): Promise<ProofAnswer> {
  if (args.about === "inbox") return ownPending(parts, caller);
  const { asOf } = await momentOf(parts);
  const answer = "seq" in args ? await placed(parts, caller, args) : await searched(parts, caller, args.id, signal);
  return { about: "message", asOf, ...answer };
}

type Answer = { readonly found: TracedMessage[]; readonly looked: Looked[] };

async function placed(parts: TraceParts, caller: Caller, { id, kind, seq, after }: Placed): Promise<Answer> {
  const from = dotForm(caller.principal);
  const rail = railsOf(parts.store, parts.space, caller.principal)[kind];
  const entry = await ownAt(parts.store, rail, caller.principal, { id, seq });
  const looked = [{ kind, messages: entry === undefined ? 0 : 1, fromSeq: seq, whole: false }];
  if (entry !== undefined) return { found: [await traced(parts, caller, kind, id, entry, after)], looked };
  if (kind !== "ask") return { found: [], looked };
  const request = await parts.statusOf(from, { seq, id });
  if (request.state === "unknown") return { found: [], looked };
  return { found: [{ kind, seq, stream: rail.stream, role: request.role, request, queue: "off" }], looked };
}

async function searched(parts: TraceParts, caller: Caller, id: string, signal: AbortSignal): Promise<Answer> {
  const { store, space } = parts;
  const rails = railsOf(store, space, caller.principal);
  const each = await Promise.all(
    SentKind.options.map(async (kind): Promise<Answer> => {
      const { entries, looked } = await searchId(store, rails[kind], id, signal);
      const found: TracedMessage[] = [];
      for (const entry of entries) found.push(await traced(parts, caller, kind, id, entry));
      if (kind !== "ask") return { found, looked: [{ kind, ...looked }] };
      const known = new Set(entries.map(({ seq }) => seq));
      const records = await recordedAsks(parts, dotForm(caller.principal), id, known);
      const whole = looked.whole && records.whole;
      return { found: [...found, ...records.found], looked: [{ kind, ...looked, whole }] };
    }),
  );
  return { found: each.flatMap(({ found }) => found), looked: each.flatMap(({ looked }) => looked) };
}

function traced(
  parts: TraceParts,
  caller: Caller,
  kind: SentKind,
  id: string,
  entry: StoredEntry,
  after?: string,
): Promise<TracedMessage> {
  switch (kind) {
    case "chat":
      return tracedChat(parts, caller, entry, after);
    case "dm":
      return tracedDm(parts, entry);
    case "ask":
      return tracedAsk(parts, dotForm(caller.principal), id, entry);
  }
}
