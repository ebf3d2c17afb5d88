/**
 * What is known of one recipient of one message: where its copy is, and how far its durable has come.
 *
 * Invariants
 * 1. How far the fan-out is is read first, then the durable, then the message or copy: what is found stored after
 *    its durable was seen beyond it was not removed by a limit, so it is confirmed (`durable-state.ts`).
 * 2. Where the counts allow two stories, neither is told: the state says that it is not known.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type DurableState, durableState } from "../../../shared/broker/durable-state.ts";
import { leaderGet, leaderNext } from "../../../shared/broker/reads.ts";
import type { Recipient, RecipientState } from "../../../shared/protocol/endpoint/proof-shapes.ts";
import { type Post, type ReadBudget, findCopy } from "./copy.ts";
import type { Owed } from "./owed.ts";
import { type Listed, listOf } from "./pending.ts";
import { type Copied, type Place, type ProofParts, copiedFor, copiesPlace, dmPlace } from "./tiers.ts";

export async function copyRecipient(
  parts: ProofParts,
  { lifecycle, why }: Owed,
  post: Post,
  copied: Copied,
  budget: ReadBudget,
): Promise<Recipient> {
  const { store, space } = parts;
  const place = copiesPlace(space, lifecycle);
  const [durable, listed] = await Promise.all([
    durableState(store, place.stream, place.durable),
    listOf(parts, lifecycle),
  ]);
  const who = { lifecycle: lifecycle.key, ...named(listed), why };
  if (durable === undefined || listed === undefined) return { ...who, state: "ended" };
  const copy = await findCopy(store, { stream: place.stream, subject: place.filter }, post, budget);
  if (copy === "unknown") return { ...who, state: "unknown" };
  if (copy === "absent") {
    const isCopied = copiedFor(copied, lifecycle.key) >= post.seq;
    return { ...who, state: isCopied ? "gone" : "copying", ...times(durable) };
  }
  const state = await stateAt(store, place, durable, copy.seq);
  return { ...who, why: copy.why, state, copiedAt: copy.timeMs, ...times(durable) };
}

/** A direct message itself is what waits: there is no copy. */
export async function dmRecipient(
  { store, space }: ProofParts,
  { lifecycle, row }: Listed,
  seq: number,
): Promise<Recipient> {
  const place = dmPlace(space, lifecycle);
  const durable = await durableState(store, place.stream, place.durable);
  const who = { lifecycle: lifecycle.key, name: row.name };
  if (durable === undefined) return { ...who, state: "ended" };
  const isStored = (await leaderGet(store, place.stream, seq)) !== undefined;
  return { ...who, state: isStored ? await stateAt(store, place, durable, seq) : "gone", ...times(durable) };
}

/** Of a message that was seen stored after its durable was looked at. */
async function stateAt(
  store: NatsConnection,
  { stream, filter }: Place,
  durable: DurableState,
  seq: number,
): Promise<RecipientState> {
  if (seq < durable.startSeq) return "later";
  if (seq > durable.deliveredSeq) return "waiting";
  if (seq <= durable.floorSeq) return "confirmed";
  if (durable.isInOrder) return "handed";
  // The floor lies right below the first that is out.
  const first = await leaderNext(store, stream, filter, durable.floorSeq + 1);
  return first?.seq === seq ? "handed" : "unsettled";
}

const named = (listed: Listed | undefined) => (listed === undefined ? {} : { name: listed.row.name });

function times({ deliveredAt, settledAt }: DurableState): Pick<Recipient, "deliveredAt" | "settledAt"> {
  return {
    ...(deliveredAt === undefined ? {} : { deliveredAt }),
    ...(settledAt === undefined ? {} : { settledAt }),
  };
}
