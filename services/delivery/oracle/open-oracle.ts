/**
 * The oracle of a space (`oracle.ts`), over this daemon's own connections: what it looks through, what it ends, and
 * how it stops.
 *
 * Invariant: the daemon knows its own connection in front, and a look that does not show that one proves nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../../../shared/broker/connect.ts";
import { gatherOver } from "../../../shared/broker/gather.ts";
import { daemonPrincipal } from "../../../shared/ledger/self.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import type { DeliveryKeys } from "../keys.ts";
import { type Seen, look, shareLooks } from "./look.ts";
import { type Kicked, type Oracle, createOracle, kickOver } from "./oracle.ts";

export type OpenOracleOptions = {
  readonly space: string;
  /** A look was taken; with what it does not cover. */
  readonly onLook: (gap: string | undefined) => void;
  readonly onKicked: (event: Kicked) => void;
};

type Over = { readonly front: Connection; readonly system: Connection; readonly stopping: AbortSignal };

export function openOracle(
  { space, onLook, onKicked }: OpenOracleOptions,
  { file, ownerSecret }: DeliveryKeys,
  { front, system, stopping }: Over,
): Oracle {
  const gather = gatherOver(system);
  const self = (): Seen | undefined => {
    const { info } = front.nc;
    return info === undefined ? undefined : { server: info.server_id, cid: info.client_id };
  };
  const parts = { gather, accounts: [file.front, file.store, file.auth], self };
  return createOracle({
    look: shareLooks(async (wanted) => {
      const seen = await look(parts, wanted);
      onLook(seen.gap);
      return seen;
    }),
    kick: kickOver(gather),
    me: daemonPrincipal(ownerSecret, space, "delivery"),
    onKicked,
    now: () => performance.now(),
    pause: (ms) => pausing(ms, stopping),
  });
}

async function pausing(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch {
    throw new CotalError(ErrorCode.Unavailable, "this daemon stops, and proves nothing any more", {
      outcome: Outcome.Unknown,
      next: "ask again: another process serves it, or this one when it is back",
    });
  }
}
