/**
 * Finds the copy of one post among a member's copies.
 *
 * Copies stand in the order of their posts, but for those that a join was owed: these were written behind newer
 * ones. So the place where it belongs is found by halving, and where it is not there, copies are looked through
 * from the time on at which the post was stored, for none is older than its post.
 *
 * Invariant: it says `absent` only after it has looked at every copy that could be it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type StoredEntry, leaderLast, leaderNext } from "../../../shared/broker/reads.ts";
import { CopyKind, Header } from "../../../shared/protocol/base/headers.ts";

export type Post = { readonly seq: number; readonly timeMs: number };
export type FoundCopy = { readonly seq: number; readonly timeMs: number; readonly why: CopyKind };

/** Reads that one answer may make for this, a large copy counting for several; shared by all whom it tells of. */
export type ReadBudget = { left: number };
const BYTES_OF_A_READ = 4096;

/** Two streams may be led by two servers, whose clocks differ a little. */
const CLOCKS_MS = 10_000;

export async function findCopy(
  nc: NatsConnection,
  { stream, subject }: { readonly stream: string; readonly subject: string },
  post: Post,
  budget: ReadBudget,
): Promise<FoundCopy | "absent" | "unknown"> {
  const paid = async (reading: Promise<StoredEntry | undefined>): Promise<StoredEntry | undefined> => {
    const entry = await reading;
    budget.left -= 1 + Math.floor((entry?.data.length ?? 0) / BYTES_OF_A_READ);
    return entry;
  };
  const next = (from: number): Promise<StoredEntry | undefined> => paid(leaderNext(nc, stream, subject, from));
  /** The first copy that is so, where all behind one that is so are. */
  const firstThat = async (isSo: (entry: StoredEntry) => boolean, last: StoredEntry) => {
    let [low, high, found] = [1, last.seq, last];
    while (low < high && budget.left > 0) {
      const middle = Math.floor((low + high) / 2);
      const entry = await next(middle);
      if (entry === undefined) break;
      if (isSo(entry)) [high, found] = [middle, entry];
      else low = entry.seq + 1;
    }
    return found;
  };

  if (budget.left <= 0) return "unknown";
  const last = await paid(leaderLast(nc, stream, subject));
  if (last === undefined) return "absent";
  const placed = await firstThat((entry) => sourceOf(entry) >= post.seq, last);
  if (sourceOf(placed) === post.seq) return copyOf(placed);
  if (last.timeMs < post.timeMs - CLOCKS_MS) return budget.left > 0 ? "absent" : "unknown";
  const since = await firstThat(({ timeMs }) => timeMs >= post.timeMs - CLOCKS_MS, last);
  for (let entry: StoredEntry | undefined = since; entry !== undefined; entry = await next(entry.seq + 1)) {
    if (sourceOf(entry) === post.seq) return copyOf(entry);
    if (budget.left <= 0) return "unknown";
  }
  return "absent";
}

const sourceOf = ({ headers }: StoredEntry): number => Number(headers?.get(Header.SourceSequence) ?? 0);

function copyOf({ seq, timeMs, headers }: StoredEntry): FoundCopy {
  const why = headers?.get(Header.CopyKind) === CopyKind.Mention ? CopyKind.Mention : CopyKind.Durable;
  return { seq, timeMs, why };
}
