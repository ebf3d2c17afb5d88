/**
 * The live half of the membership feed (§8): what every client hears now, on every server of the broker.
 *
 * Invariants
 * 1. A server that does not answer, or lists nothing, keeps what it last said for as long as the other servers still count it, and for
 *    `KEPT_MS` at most; the gap says that it is missing. Nobody seems to have left because a server was slow.
 * 2. What is remembered is bounded by the connections that there are.
 */
import type { Gather } from "../../../shared/broker/gather.ts";
import { serversOf } from "../../../shared/broker/servers.ts";
import { type Hearing, type ListingParts, type Names, listSubscriptions } from "./subscriptions.ts";

export type LiveView = {
  readonly hearings: readonly Hearing[];
  /** What the look does not cover; `undefined` for a complete one. */
  readonly gap: string | undefined;
};

/** So long the other servers of a cluster count one that crashed (nats-server 2.14), and a little more. */
export const KEPT_MS = 160_000;

type Remembered = { readonly names: Names; hearings: readonly Hearing[]; at: number };

export type LiveParts = Omit<ListingParts, "gather"> & {
  readonly gather: Gather;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

/** Looks one after the other: each call is one look. */
export function createLive(parts: LiveParts): () => Promise<LiveView> {
  const { gather, now } = parts;
  const remembered = new Map<string, Remembered>();
  return async () => {
    const { servers, gap } = await serversOf(gather);
    const gaps: string[] = gap === undefined ? [] : [gap];
    let nameless = 0;
    for (const server of servers) {
      const known = remembered.get(server.id) ?? { names: new Map(), hearings: [], at: now() };
      const listing = await listSubscriptions(parts, server, known.names);
      if (listing.kind === "missing") gaps.push(listing.why);
      else {
        known.hearings = listing.hearings;
        known.at = now();
        nameless += listing.nameless;
      }
      remembered.set(server.id, known);
    }
    const answered = new Set(servers.map(({ id }) => id));
    for (const [id, { at }] of remembered) {
      const isGone = (!answered.has(id) && gap === undefined) || now() - at > KEPT_MS;
      if (isGone) remembered.delete(id);
    }
    if (nameless > 0) gaps.push(`${nameless} connections bear no principal's name`);
    return {
      hearings: [...remembered.values()].flatMap(({ hearings }) => hearings),
      gap: gaps.length === 0 ? undefined : gaps.join("; "),
    };
  };
}
