/**
 * Rows for a daemon that mints its own credentials from its own signing keys and writes no ledger
 * (decisions H14, H45): whoever writes the ledger of the space enters them.
 *
 * Invariants
 * 1. The caller is the holder: who asks comes from the subject that the broker has checked. Whether it is a
 *    daemon that may ask is for the one that serves to say, before.
 * 2. No row ends later than a daemon's credential lives.
 */
import { Life } from "../grants/matrix.ts";
import { badRequest } from "../protocol/base/errors.ts";
import type { DaemonEnterArgs } from "../protocol/endpoint/auth-shapes.ts";
import { enterCredential } from "./entry.ts";
import { takeEpoch } from "./epoch.ts";
import { type Holder, activateSelf } from "./self.ts";
import type { LedgerStore } from "./store.ts";

const CLOCKS_APART = 60;

export async function enterDaemonRows(
  ledger: LedgerStore,
  { principal, uid }: Holder,
  { begin, credentials }: DaemonEnterArgs,
  /** Epoch milliseconds. */
  now: number,
): Promise<{ readonly epoch?: number }> {
  const latest = Math.floor(now / 1000) + Life.Host + CLOCKS_APART;
  if (credentials.some(({ expires }) => expires > latest)) {
    throw badRequest(
      "a daemon's credential lives for a day at most",
      "mint it with its profile's own life; if the clocks of both machines are apart, let them keep time by NTP",
    );
  }
  await activateSelf(ledger, { principal, uid });
  const epoch = begin ? await takeEpoch(ledger, principal, uid) : undefined;
  for (const { credentialId, expires } of credentials) {
    await enterCredential(ledger, { principal, uid, credentialId, expires });
  }
  return epoch === undefined ? {} : { epoch };
}
