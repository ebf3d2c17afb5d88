/** How this service connects: for as long as it lives, for one errand, or as what holds the plane's claim. */
import { type ConnectOptions, openConnection } from "../../shared/broker/connect.ts";
import type { OwnCredential } from "../../shared/broker/own-credential.ts";
import { type SpaceHooks, lastingDial } from "../../shared/daemon/spaces.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import type { ScannedStore } from "../../shared/protocol/base/names.ts";
import type { ScannerConnection } from "./plane/scanners.ts";

export type Dialing = SpaceHooks & { readonly servers: readonly string[] };

/** A connection that comes back for ever, and says how it is. */
export function lasting(options: Dialing, name: string, { authenticator, inboxPrefix }: OwnCredential): ConnectOptions {
  return { ...lastingDial("auth", options, name), authenticator, inboxPrefix };
}

/** Without its status: who asked for it hears how it went, and nobody would clear a failure. */
export function oneShot(options: Dialing, name: string, own: OwnCredential): ConnectOptions {
  const { onStatus: _, ...dialed } = lasting(options, name, own);
  return { ...dialed, reconnect: { kind: "single", attempts: 3 } };
}

/** One of the two connections that the claim is held by. It is not dialed again: its number is the claim. */
export async function openScanner(
  options: Dialing,
  which: ScannedStore,
  own: OwnCredential,
): Promise<ScannerConnection> {
  const dialed = oneShot(options, `plane ${which}`, own);
  const connection = await openConnection({ ...dialed, reconnect: { kind: "single", attempts: 1 } });
  return { connection, userKey: own.userKey, freshMs: (own.expires() - Math.floor(Date.now() / 1000)) * 500 };
}

/** Gives a credential of this process its row until then, in epoch seconds (§13.1). */
export const enter = (ledger: LedgerStore, own: OwnCredential, expires = own.expires()): Promise<void> =>
  enterCredential(ledger, { ...own.holder, credentialId: own.userKey, expires });
