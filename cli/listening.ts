/**
 * Shows deliveries as they come, for `tail` and `join`: until a count, a time, or Ctrl-C.
 *
 * Invariant: a delivery is acknowledged once it is printed, and not before; one that could not be
 * printed comes again.
 */
import type { InboxItem } from "../shared/client/item.ts";
import type { Session } from "../shared/client/session-types.ts";
import { matches } from "../shared/protocol/base/channels.ts";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { Exit } from "./exit.ts";
import { printMessage } from "./messages.ts";
import type { Output } from "./output.ts";
import { stopSignals } from "../launcher/stop-signals.ts";

export type ListenFor = {
  readonly count?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly dm: boolean;
  readonly role: boolean;
  /** Channels and patterns that were named: what is kept for this member of any other stays for another reader. */
  readonly only?: readonly string[] | undefined;
};

/** When a copy that is for another reader is offered again. */
const LATER_MS = 5000;

function isWanted(item: InboxItem, only: readonly string[] | undefined): boolean {
  return item.kind !== "chat" || only === undefined || only.some((pattern) => matches(pattern, item.channel));
}

/** Throws `deadline-exceeded` (exit 4) when the time was up before the count. */
export async function listen(session: Session, out: Output, options: ListenFor): Promise<Exit> {
  const { count, timeoutMs, dm, role } = options;
  const signals = stopSignals();
  const leave = (): never => process.exit(Exit.Refused);
  signals.atOnce.addEventListener("abort", leave);
  const stop = timeoutMs === undefined ? signals.stop : AbortSignal.any([signals.stop, AbortSignal.timeout(timeoutMs)]);
  const stopped = new Promise<undefined>((resolve) => {
    if (stop.aborted) resolve(undefined);
    stop.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  const inbox = session.inbox({ dm, role });
  let shown = 0;
  try {
    while (count === undefined || shown < count) {
      const next = await Promise.race([inbox.next(), stopped]);
      if (next === undefined || next.done === true) break;
      if (!isWanted(next.value, options.only)) {
        next.value.nak(LATER_MS);
        continue;
      }
      printMessage(out, next.value);
      next.value.ack();
      shown += 1;
    }
  } finally {
    await inbox.return?.();
  }
  if (count === undefined || shown >= count) return Exit.Done;
  if (signals.stop.aborted) return Exit.Refused;
  throw new CotalError(ErrorCode.DeadlineExceeded, `the time was up after ${shown} of ${count} messages`, {
    next: "give it more time with --timeout, or read back what a channel keeps with cotal history",
  });
}
