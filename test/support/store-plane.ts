/**
 * The authority plane over the real stores of a test's space, in the test's own process: no claim, no endpoint, no edge.
 * It holds the plane from the start, and it dies at a given durable write where a test wants that.
 */
import { join } from "node:path";
import { readAuthKeys } from "../../services/auth/keys.ts";
import { type PlaneSource, planeParts } from "../../services/auth/plane-parts.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { type Death, createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { EVERYTHING, EXECUTOR } from "./plane-parts.ts";
import type { TestSpace } from "./space.ts";

/** What the parts are made of. Whoever removes the remains of a lifecycle does so over the same connection. */
export function storeSource(space: TestSpace, store: Connection, die?: Death): PlaneSource {
  const { nc } = store;
  const writer = createWriter({ nc, die });
  return {
    space: "main",
    store: { nc, inboxPrefix: store.inboxPrefix, maxPayload: 1_048_576 },
    ledger: brokerLedgerStore(nc, writer, "main"),
    writer,
    keys: readAuthKeys(join(space.state, "spaces", "{space}", "auth"), "main"),
    cleaner: () => Promise.resolve({ ...store, drain: () => Promise.resolve() }),
    holdsPlane: () => true,
    claimStands: () => Promise.resolve(true),
    executor: () => EXECUTOR,
    calls: () => undefined,
    front: () => undefined,
    policy: "auto",
    defaults: EVERYTHING,
    actorsPerOwner: 1000,
    limits: () => ({ subs: 1000, payload: 262_144 }),
  };
}

/** One process's parts, with what a test says in place of the real ones; it dies at the given write. */
export function storeParts(space: TestSpace, store: Connection, die?: Death, over?: Partial<PlaneParts>): PlaneParts {
  return { ...planeParts(storeSource(space, store, die)), ...over };
}
