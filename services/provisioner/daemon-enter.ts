/**
 * `daemon-enter`: rows for a daemon's own credentials, where this daemon writes the ledger: in a space with
 * static credentials (decision H14). Where people sign in the auth service is asked.
 */
import { enterDaemonRows } from "../../shared/ledger/daemon-enter.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import type { DaemonEnterArgs } from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointName } from "../../shared/protocol/endpoint/names.ts";
import { type SpaceContext, staticAuthority } from "./context.ts";

/** Daemons that have their rows from here. */
const SERVED = [EndpointName.Delivery] as const;

export async function daemonEnter(
  context: SpaceContext,
  caller: Caller,
  args: DaemonEnterArgs,
): Promise<{ readonly epoch?: number }> {
  const { ledger } = staticAuthority(context);
  const me = dotForm(caller.principal);
  if (!SERVED.some((name) => dotForm(context.daemon(name)) === me)) {
    throw new CotalError(ErrorCode.PermissionDenied, `${me} is no daemon of this space`, {
      outcome: Outcome.NotExecuted,
      next: "nothing to do",
    });
  }
  return enterDaemonRows(ledger, caller, args, context.now());
}
