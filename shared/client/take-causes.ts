/** Why a holder can't take requests to its role, and what whoever runs it can do (§8.1). */
import { type CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

export type TakeCause = "no-daemon" | "old-daemon" | "old-credential" | "no-answer" | "busy";

export const TAKE_CAUSES: Readonly<Record<TakeCause, { readonly message: string; readonly next: string }>> = {
  "no-daemon": {
    message: "requests to this role wait: no delivery daemon runs that would hand them out",
    next: "start it (cotal up); they are asked for again by themselves",
  },
  "old-daemon": {
    message: "requests to this role wait: the delivery daemon is of a version that does not hand them out",
    next: "restart the delivery daemon at this version",
  },
  "old-credential": {
    message: "requests to this role wait: the broker does not let this credential take them",
    next: "start this seat anew with a current credential: this one was minted before takes, or for no role",
  },
  "no-answer": {
    message: "requests to this role wait: the delivery daemon does not answer",
    next: "cotal status shows it; they are asked for again by themselves",
  },
  busy: {
    message: "requests to this role wait: the delivery daemon can't hand them out now",
    next: "they are asked for again by themselves; if it lasts, the daemon's log says why",
  },
};

const UNKNOWN_THERE: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.Unimplemented,
  ErrorCode.NotFound,
  ErrorCode.ContractMismatch,
  ErrorCode.OpMismatch,
]);

/** What a call to the daemon that failed says. */
export function causeOf(error: CotalError): TakeCause {
  if (error.code === ErrorCode.PermissionDenied) return "old-credential";
  if (UNKNOWN_THERE.has(error.code)) return "old-daemon";
  if (error.code === ErrorCode.Unavailable && error.outcome === Outcome.NotExecuted) return "no-daemon";
  return "no-answer";
}
