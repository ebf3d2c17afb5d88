/**
 * What a space's accounts may take of the broker (decision H67): connections, and bytes on disk.
 *
 * Kept beside the space's keys, because every push of an account repeats them. The default leaves the
 * disk to the server's own limit: an account limit is reserved at once, and no default fits every disk.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import { readKept, trustPaths, writePrivate } from "../../shared/trust/folder.ts";

export const AccountLimits = z.strictObject({
  /** Of the store; -1 for the server's own limit. */
  diskBytes: z.number().int().min(-1),
  /** Of front, where clients connect. */
  connections: z.number().int().min(-1),
});
export type AccountLimits = z.infer<typeof AccountLimits>;

const DEFAULT_ACCOUNT_LIMITS: AccountLimits = { diskBytes: -1, connections: 10_000 };

const pathOf = (state: string, space: string): string => join(trustPaths(state).spaceTrust(space), "limits.json");

export function accountLimits(state: string, space: string): AccountLimits {
  const path = pathOf(state, space);
  return existsSync(path) ? readKept(path, (text) => AccountLimits.parse(JSON.parse(text))) : DEFAULT_ACCOUNT_LIMITS;
}

/** Changes what is named and keeps the rest. */
export function setAccountLimits(
  state: string,
  space: string,
  change: { readonly diskBytes: string | undefined; readonly connections: string | undefined },
): void {
  const { diskBytes, connections } = change;
  if (diskBytes === undefined && connections === undefined) return;
  const next = {
    ...accountLimits(state, space),
    ...(diskBytes === undefined ? {} : { diskBytes: wholeNumber("disk-bytes", diskBytes) }),
    ...(connections === undefined ? {} : { connections: wholeNumber("connections", connections) }),
  };
  writePrivate(pathOf(state, space), JSON.stringify(next));
}

function wholeNumber(field: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && (value === -1 || value > 0)) return value;
  throw badRequest(
    `${field} ${JSON.stringify(text.slice(0, 40))} is no limit`,
    "use a whole number from 1, or -1 for none",
  );
}
