/**
 * Who hears a channel (§8), and whom a mention reaches there without that (§4): for people to look at, read whole.
 *
 * Only who looks may ask: an observer, an admin, a deployer. It is never an answer to whether somebody will get a
 * message: the feed is as old as it says, and does not cover what it says.
 */
import type { z } from "zod";
import { DeliveryCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import {
  type FeedAge,
  type FeedMember,
  MembersAnswer,
  ReachedAnswer,
  type ReachedMember,
} from "../protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import type { Call } from "./caller.ts";

export type ChannelMembers = {
  /** Of the last page: how old the look is by the broker's clock, and what it does not cover. */
  readonly view: FeedAge;
  /** By id. */
  readonly members: readonly FeedMember[];
  /** Rows that can't be read and are left out. */
  readonly unreadable: number;
};

export type ChannelReached = {
  /** By id; who hears the channel is among them. */
  readonly reached: readonly ReachedMember[];
  readonly unreadable: number;
};

/** Reads to the end. `channel` may be a pattern: whoever hears a channel of it. Throws what a call throws. */
export async function readChannelMembers(call: Call, channel: string, deadlineMs: number): Promise<ChannelMembers> {
  let view: FeedAge = { state: "none" };
  const members: FeedMember[] = [];
  const unreadable = await readPages(call, { channel }, MembersAnswer, deadlineMs, (page) => {
    ({ view } = page);
    members.push(...page.members);
  });
  return { view, members: byId(members), unreadable };
}

/** Whose read list covers the channel, joined or not, as the rows are now. */
export async function readChannelReached(call: Call, channel: string, deadlineMs: number): Promise<ChannelReached> {
  const reached: ReachedMember[] = [];
  const args = { of: "reaches", channel };
  const unreadable = await readPages(call, args, ReachedAnswer, deadlineMs, (page) => {
    reached.push(...page.reached);
  });
  return { reached: byId(reached), unreadable };
}

/** Hands over page by page; returns how many rows could not be read. */
async function readPages<Page extends { readonly unreadable: number; readonly cursor?: number | undefined }>(
  call: Call,
  args: object,
  answer: z.ZodType<Page>,
  deadlineMs: number,
  take: (page: Page) => void,
): Promise<number> {
  let unreadable = 0;
  for (let cursor: number | undefined; ;) {
    const asked = cursor === undefined ? args : { ...args, cursor };
    const { data } = await call(EndpointName.Delivery, DeliveryCommand.Members, asked, { deadlineMs });
    const page = answer.safeParse(data).data;
    if (page === undefined || (page.cursor ?? Infinity) <= (cursor ?? 0)) throw malformed();
    unreadable += page.unreadable;
    take(page);
    if (page.cursor === undefined) return unreadable;
    ({ cursor } = page);
  }
}

/** One that changes meanwhile is met again, as it is then: the last one counts. */
function byId<T extends { readonly id: string }>(met: readonly T[]): T[] {
  return [...new Map(met.map((one) => [one.id, one])).values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

function malformed(): CotalError {
  return new CotalError(ErrorCode.Internal, "the answer to members does not have the shape of one", {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}
