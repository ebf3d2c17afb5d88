/**
 * The read ACL of a caller: what a mediated read is cut to (decision H34).
 *
 * A leader read of the row of exactly this lifecycle, at every call: nothing is cached, so a
 * narrowed row holds at once.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { isMarker, leaderLast } from "../../../shared/broker/reads.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { containedIn, covers } from "../../../shared/protocol/base/channels.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { AclRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";

export type ReadAcl = {
  readonly list: readonly string[];
  /** Throws `permission-denied` unless the channel or pattern is readable as a whole. */
  readonly demand: (pattern: string) => void;
  readonly covers: (channel: string) => boolean;
};

export type AclReader = (caller: Caller) => Promise<ReadAcl>;

/** In an open space everybody reads everything, and every surface says so. */
export const openAcl: AclReader = () => Promise.resolve(readAcl([">"]));

export function storedAcl(nc: NatsConnection, space: string): AclReader {
  const { acl } = spaceNames(space).bucket;
  return async ({ principal, uid }) => {
    const entry = await leaderLast(nc, bucketStream(acl), kvKey(acl, ledgerKey.acl(principal, uid)));
    if (entry === undefined || isMarker(entry.headers))
      throw denied("this lifecycle may read nothing: it has no read list");
    const row = AclRow.safeParse(parseJson(entry.data));
    if (!row.success) throw denied("the read list of this lifecycle does not parse");
    return readAcl(row.data.allowSubscribe);
  };
}

export function readAcl(list: readonly string[]): ReadAcl {
  return {
    list,
    covers: (channel) => covers(list, channel),
    demand: (pattern) => {
      if (containedIn(list, pattern) === undefined) throw denied(`#${pattern} is outside this credential's read list`);
    },
  };
}

function denied(why: string): CotalError {
  return new CotalError(ErrorCode.PermissionDenied, why, {
    outcome: Outcome.NotExecuted,
    next: "ask the operator for a credential that reads it (cotal mint --subscribe, or cotal actor grant where people sign in)",
  });
}
