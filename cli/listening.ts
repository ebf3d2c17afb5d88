/**
 * Shows deliveries as they come, for `tail` and `join`: until a count, a time, or Ctrl-C.
 *
 * Invariant: a delivery is acknowledged once it is printed, and not before; one that could not be
 * printed comes again.
 */
import type { Session } from "../shared/client/session-types.ts";
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
  /** Copies kept for this member, of whatever channel. */
  readonly durable: boolean;
};

/** Throws `deadline-exceeded` (exit 4) when the time was up before the count. */
export async function listen(session: Session, out: Output, options: ListenFor): Promise<Exit> {
  const { count, timeoutMs, dm, role, durable } = options;
  const signals = stopSignals();
  const leave = (): never => process.exit(Exit.Refused);
  signals.atOnce.addEventListener("abort", leave);
  const stop = timeoutMs === undefined ? signals.stop : AbortSignal.any([signals.stop, AbortSignal.timeout(timeoutMs)]);
  const stopped = new Promise<undefined>((resolve) => {
    if (stop.aborted) resolve(undefined);
    stop.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  const inbox = session.inbox({ dm, role, durable });
  let shown = 0;
  try {
    while (count === undefined || shown < count) {
      const next = await Promise.race([inbox.next(), stopped]);
      if (next === undefined || next.done === true) break;
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
