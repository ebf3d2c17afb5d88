/**
 * Faults of the machine as errors that say what to do: a file that may not be read, a full disk.
 *
 * Invariant: what the file system says by a code of its own never ends as `internal`.
 */
import { CotalError, ErrorCode, toCotalError } from "../shared/protocol/base/errors.ts";

type Fault = { readonly code: ErrorCode; readonly what: string; readonly next: string };

const OWNER = "run it as the user who owns it, or name another folder with --state DIR";
const FAULTS: Readonly<Record<string, Fault>> = {
  EACCES: { code: ErrorCode.PermissionDenied, what: "is not allowed to this user", next: OWNER },
  EPERM: { code: ErrorCode.PermissionDenied, what: "is not allowed to this user", next: OWNER },
  EROFS: {
    code: ErrorCode.FailedPrecondition,
    what: "lies on a disk that can only be read",
    next: "name a folder that can be written with --state DIR",
  },
  ENOSPC: { code: ErrorCode.ResourceExhausted, what: "has no room: the disk is full", next: "free room on that disk" },
  EDQUOT: { code: ErrorCode.ResourceExhausted, what: "has no room: a quota is reached", next: "free room there" },
  ENOTDIR: {
    code: ErrorCode.FailedPrecondition,
    what: "lies below something that is no folder",
    next: "name another folder or file",
  },
  EISDIR: { code: ErrorCode.FailedPrecondition, what: "is a folder, and a file is needed", next: "name a file" },
};

/** Any thrown value as an error for a person. */
export function asError(thrown: unknown): CotalError {
  const { code, path } = systemError(thrown);
  const fault = code === undefined ? undefined : FAULTS[code];
  if (fault === undefined || path === undefined) return toCotalError(thrown);
  return new CotalError(fault.code, `${path} ${fault.what} (${code})`, { next: fault.next, cause: thrown });
}

function systemError(thrown: unknown): { readonly code?: string; readonly path?: string } {
  if (!(thrown instanceof Error) || thrown instanceof CotalError) return {};
  const { code, path } = thrown as NodeJS.ErrnoException;
  return { ...(typeof code === "string" ? { code } : {}), ...(typeof path === "string" ? { path } : {}) };
}
