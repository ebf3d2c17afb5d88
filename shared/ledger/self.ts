/** The lifecycles that nobody mints: the daemons of a space, and what the trust program made. */
import { randomBytes } from "node:crypto";
import { activate } from "./activation.ts";
import type { LedgerStore } from "./store.ts";
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { type Principal, dotForm, principal } from "../protocol/base/principals.ts";
import { systemOwner } from "../trust/owner.ts";

export type Holder = { readonly principal: Principal; readonly uid: string };

/** `ledger` and `auth_ledger`: the provisioner and the auth service, where they write the ledger. */
const DAEMONS = ["provisioner", "ledger", "auth", "auth_ledger", "delivery"] as const;
export type DaemonActor = (typeof DAEMONS)[number];

/** A daemon of the space, under the owner that is the space itself (decision H48). */
export function daemonPrincipal(secret: Uint8Array, space: string, actor: DaemonActor): Principal {
  return principal(systemOwner(secret, space), actor);
}

/** True for a name that a daemon of the space lives under: ending it would end the space. */
export function isDaemon(secret: Uint8Array, space: string, { owner, actor }: Principal): boolean {
  return owner === systemOwner(secret, space) && DAEMONS.some((daemon) => daemon === actor);
}

/** The same operation at each start, so it converges. */
export async function activateSelf(ledger: LedgerStore, { principal: who, uid }: Holder): Promise<void> {
  await activate(
    ledger,
    {
      opId: `self-${uid}`,
      principal: who,
      requestDigest: canonicalDigest({ principal: dotForm(who), uid }),
      managerInstance: uid,
      uid,
      now: Date.now(),
      random: randomBytes,
    },
    () => Promise.resolve(),
  );
}
