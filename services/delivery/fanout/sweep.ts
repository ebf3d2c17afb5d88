/**
 * Takes back what a read list no longer covers (§7, §8, `delivery.md` 5): stored copies, and memberships.
 *
 * Invariant: safe to run again, and after any death. A list counts as swept only once its copies and rows are
 * settled, and the marker says how far that is.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { apiRequest } from "../../../shared/broker/api.ts";
import { ApiCode, apiNumber } from "../../../shared/broker/errors.ts";
import { leaderNext } from "../../../shared/broker/reads.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { jsApi } from "../../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { parseSubject } from "../../../shared/protocol/base/subjects.ts";
import { targetOf } from "./copies.ts";
import type { RowWriter } from "./member-store.ts";
import type { View } from "./view.ts";

export type SweepParts = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly writer: Writer;
  readonly view: View;
  readonly rows: RowWriter;
  readonly onSwept: (copies: number) => void;
};

/** `position`: up to where everything of CHAT has its copies. */
export async function sweep(parts: SweepParts, position: number): Promise<void> {
  const { view, rows } = parts;
  for (const lifecycle of view.toSweep) {
    await sweepCopies(parts, lifecycle);
    for (const member of view.cover.of(lifecycle)) {
      if (member.row.state === "left" || view.mayJoin(lifecycle, member.row.pattern)) continue;
      const { pattern, join } = member.row;
      await rows.put(member, { v: 1, pattern, state: "left", join, leave: Math.max(join, position) });
    }
    view.swept(lifecycle);
  }
}

async function sweepCopies({ nc, space, writer, view, onSwept }: SweepParts, lifecycle: string): Promise<void> {
  const { dlv } = spaceNames(space);
  const { subject } = targetOf(space, lifecycle);
  let removed = 0;
  for (let seq = 1; ;) {
    const entry = await leaderNext(nc, dlv, subject, seq);
    if (entry === undefined) break;
    seq = entry.seq + 1;
    const source = parseSubject(entry.headers?.get(Header.SourceSubject) ?? "");
    if (source !== undefined && view.reads(lifecycle, source.rest)) continue;
    await writer.effect(() => remove(nc, dlv, entry.seq));
    removed += 1;
  }
  if (removed > 0) onSwept(removed);
}

async function remove(nc: NatsConnection, stream: string, seq: number): Promise<void> {
  try {
    await apiRequest(nc, jsApi.messageDelete(stream), "take a copy back", { seq, no_erase: true });
  } catch (error) {
    // The limit of its subject has removed it meanwhile.
    const number = apiNumber(error);
    if (number !== ApiCode.NoMessageFound && number !== ApiCode.SequenceNotFound) throw error;
  }
}
