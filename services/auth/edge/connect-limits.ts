/**
 * Connect limits (§10): how often one actor, one owner and one client address may connect.
 *
 * A bearer that this space has signed is charged to the actor and the owner it names, expired or not;
 * anything else to the address that it came from.
 *
 * Invariants
 * 1. One set for each space and process (decision H18): no space spends another one's allowance.
 * 2. Memory is bounded, whoever asks. An IPv6 address counts as its /64, which one machine has whole.
 * 3. What is refused for one bucket takes nothing from another.
 */
import { isIPv6 } from "node:net";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { type Rate, createBuckets } from "../../../shared/serve/buckets.ts";

export type LimitSizes = {
  readonly actor: Rate;
  readonly owner: Rate;
  readonly host: Rate;
  /** Buckets kept of each kind. */
  readonly keys: number;
};

/** A person's hundred agents come back at once after an outage; a storm of one agent does not pass. */
export const DEFAULT_LIMIT_SIZES: LimitSizes = {
  actor: { burst: 30, perMinute: 30 },
  owner: { burst: 600, perMinute: 600 },
  host: { burst: 60, perMinute: 60 },
  keys: 10_000,
};

export type Limited = { readonly limit: "actor" | "owner" | "host"; readonly retryAfterSeconds: number };

export type ConnectLimits = {
  /** Charges a connect to the principal of a bearer; says which bucket is empty, if one is. */
  readonly chargePrincipal: (p: Principal) => Limited | undefined;
  /** Charges a connect whose bearer does not verify. */
  readonly chargeHost: (host: string | undefined) => Limited | undefined;
  /** What the exchange asks: would a connect of this actor be refused now? Takes nothing. */
  readonly limited: (p: Principal) => Limited | undefined;
};

export function createConnectLimits(sizes: LimitSizes, now: () => number): ConnectLimits {
  const actors = createBuckets(sizes.actor, sizes.keys, now);
  const owners = createBuckets(sizes.owner, sizes.keys, now);
  const hosts = createBuckets(sizes.host, sizes.keys, now);

  function limited(p: Principal): Limited | undefined {
    const actor = actors.wait(dotForm(p));
    if (actor > 0) return { limit: "actor", retryAfterSeconds: actor };
    const owner = owners.wait(p.owner);
    return owner > 0 ? { limit: "owner", retryAfterSeconds: owner } : undefined;
  }

  return {
    limited,
    chargePrincipal: (p) => {
      const over = limited(p);
      if (over !== undefined) return over;
      actors.take(dotForm(p));
      owners.take(p.owner);
      return undefined;
    },
    chargeHost: (host) => {
      const key = hostKey(host);
      const wait = hosts.wait(key);
      if (wait > 0) return { limit: "host", retryAfterSeconds: wait };
      hosts.take(key);
      return undefined;
    },
  };
}

/** What an address counts as. A connection without one (over a proxy, in process) shares one bucket. */
export function hostKey(host: string | undefined): string {
  if (host === undefined || host === "") return "unknown";
  const text = host.slice(0, 64).toLowerCase();
  const mapped = /^::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/.exec(text)?.[1];
  if (mapped !== undefined) return mapped;
  return isIPv6(text) ? network64(text) : text;
}

function network64(address: string): string {
  const [bare = ""] = address.split("%");
  const [head = "", tail] = bare.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const gap = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length);
  const groups = [...left, ...Array.from({ length: gap }, () => "0"), ...right];
  return `${groups
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ""))
    .join(":")}::/64`;
}
