/**
 * Who hears a channel, for people to look at (§8): the membership feed, read whole.
 *
 * Only who looks may ask: an observer, an admin, a deployer. It is never an answer to whether somebody will get a
 * message: it is as old as it says, and does not cover what it says.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type FeedAge, type FeedMember, MembersAnswer } from "../protocol/endpoint/delivery-shapes.ts";
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

/** Reads to the end. `channel` may be a pattern: whoever hears a channel of it. Throws what a call throws. */
export async function readChannelMembers(call: Call, channel: string, deadlineMs: number): Promise<ChannelMembers> {
  const found = new Map<string, FeedMember>();
  let unreadable = 0;
  for (let cursor: number | undefined; ;) {
    const args = cursor === undefined ? { channel } : { channel, cursor };
    const { data } = await call(EndpointName.Delivery, "members", args, { deadlineMs });
    const page = MembersAnswer.safeParse(data).data;
    if (page === undefined || (page.cursor ?? Infinity) <= (cursor ?? 0)) throw malformed();
    unreadable += page.unreadable;
    // One that changes meanwhile is met again, as it is then.
    for (const member of page.members) found.set(member.id, member);
    if (page.cursor === undefined) {
      const members = [...found.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
      return { view: page.view, members, unreadable };
    }
    ({ cursor } = page);
  }
}

function malformed(): CotalError {
  return new CotalError(ErrorCode.Internal, "the answer to members does not have the shape of one", {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}
