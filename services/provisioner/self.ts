/** The lifecycles that nobody mints: the daemons of this process, and what the trust program made. */
import { randomBytes } from "node:crypto";
import { activate } from "../../shared/ledger/activation.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { type Principal, dotForm, principal } from "../../shared/protocol/base/principals.ts";
import { systemOwner } from "../../shared/trust/owner.ts";

export type Holder = { readonly principal: Principal; readonly uid: string };

const DAEMONS = ["provisioner", "ledger"] as const;
type DaemonActor = (typeof DAEMONS)[number];

/** A daemon of the space, under the owner that is the space itself (decision H48). */
export function daemonPrincipal(secret: Uint8Array, space: string, actor: DaemonActor): Principal {
  return principal(systemOwner(secret, space), actor);
}

/** True for a name that this process itself lives under: ending it would end the space. */
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
