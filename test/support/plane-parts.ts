/** The plane's parts over a ledger in memory: no broker, a clock that stands, and seeded randomness. */
import { createHash } from "node:crypto";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import type { ActorLists } from "../../services/auth/plane/authority-type.ts";
import { GONE, LIVE, type Liveness } from "../../services/auth/plane/liveness.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";

export const OWNER = `u_${"a".repeat(26)}`;
export const STRANGER = `u_${"b".repeat(26)}`;
/** The owner that is the space itself. */
export const SYSTEM = `u_${"s".repeat(26)}`;
export const NOW_MS = 1_800_000_000_000;
export const SIGN_IN = { by: "person", issuer: "https://issuer.test", subject: "somebody", name: "Somebody" } as const;

export const EVERYTHING: ActorLists = { allowSubscribe: [">"], allowPublish: [">"], capabilities: [] };

const tuple = (cid: number) => ({ serverId: `N${"A".repeat(55)}`, cid, userNkey: `U${"A".repeat(55)}` });
export const EXECUTOR = { ledger: tuple(1), records: tuple(2) };

/** What the servers may say of a connection. */
export const SAID = {
  live: LIVE,
  gone: GONE,
  unknown: { kind: "unknown", why: "a server is silent" },
} as const satisfies Record<Liveness["kind"], Liveness>;

export type TestParts = PlaneParts & { readonly made: string[]; readonly removed: string[] };

let drawn = 0;
/** Different at each call, the same in each run. */
export function seededBytes(count: number): Uint8Array {
  const out = Buffer.alloc(count);
  for (let at = 0; at < count; at += 32) {
    createHash("sha256")
      .update(`plane ${(drawn += 1)}`)
      .digest()
      .copy(out, at);
  }
  return out;
}

export function memoryParts(ledger: LedgerStore, over: Partial<PlaneParts> = {}): TestParts {
  const made: string[] = [];
  const removed: string[] = [];
  return {
    space: "main",
    ledger,
    holdsPlane: () => true,
    claimStands: () => Promise.resolve(true),
    executor: () => EXECUTOR,
    livenessOf: () => Promise.resolve(LIVE),
    plane: () => undefined,
    makeDurables: async (p, uid, role) => {
      made.push(`${p.owner}.${p.actor}.${uid}.${role ?? "-"}`);
    },
    makeQueue: async (role) => {
      made.push(`queue ${role}`);
    },
    connectionsOf: () => Promise.resolve({ kind: "none" }),
    isSwept: () => Promise.resolve(true),
    endConnections: () => Promise.resolve(true),
    ends: createTurns(),
    removeRemains: async (p, uid) => {
      removed.push(`${p.owner}.${p.actor}.${uid}`);
    },
    frontiers: () => Promise.resolve({ DM_main: 7 }),
    answerBytes: () => 400_000,
    ledgerPage: async (bucket, filter) => {
      const keys = await ledger.keys(bucket, filter.endsWith(">") ? `${filter.slice(0, -1)}*` : filter);
      const rows = await Promise.all(
        keys.map(async (key, at) => {
          const row = await ledger.read(bucket, key);
          return { key, seq: at + 1, timeMs: NOW_MS, value: row.kind === "value" ? row.value : undefined };
        }),
      );
      return { rows };
    },
    tryMint: () => Promise.resolve(),
    isReservedOwner: (owner) => owner === SYSTEM,
    policy: "auto",
    defaults: EVERYTHING,
    actorsPerOwner: 50,
    frontAccount: `A${"F".repeat(55)}`,
    managerInstance: "instance",
    now: () => NOW_MS,
    random: seededBytes,
    made,
    removed,
    ...over,
  };
}
