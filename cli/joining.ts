/** Joins channels and says how each is joined (§7), the shortfall included. */
import type { Joined } from "../shared/client/room.ts";
import type { Session } from "../shared/client/session-types.ts";
import { containedIn } from "../shared/protocol/base/channels.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { DEFAULT_CHANNELS } from "./minting.ts";
import type { Output } from "./output.ts";

/** What is joined where nobody chose: #general, or what the credential reads if that is not among it. */
export function defaultChannels({ me }: Session): readonly string[] {
  const list = me.allowSubscribe;
  if (list === undefined || DEFAULT_CHANNELS.every((channel) => containedIn(list, channel) !== undefined)) {
    return DEFAULT_CHANNELS;
  }
  return list;
}

export async function joinAll(session: Session, out: Output, channels: readonly string[]): Promise<void> {
  for (const channel of channels) {
    const joined = await joinOne(session, channel);
    const { state, shortfall, frontier } = joined;
    const item = {
      kind: "joined",
      channel: joined.channel,
      state,
      class: joined.class,
      ...(frontier === undefined ? {} : { frontier }),
      ...(shortfall === undefined ? {} : { shortfall }),
    };
    // In words the session says it itself, once for all channels.
    out.notice(item, `#${joined.channel} ${state}`);
  }
}

/** A refusal names what the credential may read. */
async function joinOne(session: Session, channel: string): Promise<Joined> {
  try {
    return await session.join(channel);
  } catch (thrown) {
    const list = session.me.allowSubscribe;
    if (!(thrown instanceof CotalError) || thrown.code !== ErrorCode.PermissionDenied) throw thrown;
    const next = list === undefined ? ASK_LEDGER : readsOnly(list);
    throw new CotalError(thrown.code, thrown.message, { outcome: Outcome.NotExecuted, next, cause: thrown });
  }
}

/** Who has signed in holds no list: the ledger does. */
const ASK_LEDGER =
  "name one that it may read with --channel (cotal actor list shows them), or widen it: cotal actor grant";

function readsOnly(list: readonly string[]): string {
  const reads = list.length === 0 ? "no channel" : list.slice(0, 20).join(", ");
  return `this credential reads ${reads}; for more ask the operator (cotal mint --subscribe, or cotal actor grant where people sign in)`;
}
