/** The plane's parts over a real broker: what `plane/parts.ts` asks for, from connections and keys. */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import type { Connection } from "../../shared/broker/connect.ts";
import { ensureLifecycleDurables, ensureRoleQueue } from "../../shared/broker/lifecycle-durables.ts";
import { frontiersOf, removeRemains } from "../../shared/broker/lifecycle-remains.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";
import { rowPage } from "../../shared/broker/reads.ts";
import type { Writer } from "../../shared/broker/write.ts";
import { Account } from "../../shared/grants/row.ts";
import type { Holder } from "../../shared/ledger/self.ts";
import { resolveCapabilities } from "../../shared/ledger/capabilities.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { type Principal, drawNonce } from "../../shared/protocol/base/principals.ts";
import type { ConnectionLimits } from "../../shared/protocol/chat/space-settings.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { chatKey } from "../../shared/protocol/ledger/chat-rows.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { systemOwner } from "../../shared/trust/owner.ts";
import type { AuthKeys } from "./keys.ts";
import type { ChatParts } from "./plane/chat/parts.ts";
import { type PlaneElsewhere, planeOver } from "./plane/elsewhere.ts";
import { livenessOf } from "./plane/liveness.ts";
import type { LedgerPage, PlaneParts } from "./plane/parts.ts";
import type { Call } from "../../shared/client/caller.ts";
import { endedThrough, evictedThrough, sweptThrough } from "../../shared/client/evictions.ts";
import { connectionsOver } from "../../shared/broker/still-connected.ts";

export type PlaneSettings = Pick<PlaneParts, "policy" | "defaults" | "actorsPerOwner" | "localManager">;

export type PlaneSource = PlaneSettings & {
  readonly space: string;
  readonly store: Pick<Connection, "nc" | "inboxPrefix" | "maxPayload">;
  readonly ledger: LedgerStore;
  readonly writer: Writer;
  readonly keys: Pick<AuthKeys, "file" | "frontSigner" | "ownerSecret" | "uid">;
  readonly cleaner: (target: Holder) => Promise<Connection>;
  readonly holdsPlane: () => boolean;
  readonly claimStands: () => Promise<boolean>;
  readonly executor: PlaneParts["executor"];
  /** The front connection, once there is one. */
  readonly front: () => NatsConnection | undefined;
  /** What is called over it. */
  readonly calls: () => Call | undefined;
  /** What the space allows a connection now (decision H67). */
  readonly limits: () => ConnectionLimits;
};

const PAGE = 100;
const ANSWER_BYTES = 400_000;
/** What the envelope of an answer takes beside its rows, generously. */
const ENVELOPE_BYTES = 16_384;

export function planeParts(source: PlaneSource): PlaneParts {
  const {
    space,
    store,
    ledger,
    writer,
    keys,
    holdsPlane,
    claimStands,
    policy,
    defaults,
    actorsPerOwner,
    localManager,
  } = source;
  const reserved = systemOwner(keys.ownerSecret, space);
  let elsewhere: PlaneElsewhere | undefined;
  const trialUser = newKey("user").publicKey;
  return {
    space,
    ledger,
    holdsPlane,
    claimStands,
    executor: source.executor,
    livenessOf: (tuple) => livenessOf(store, tuple),
    plane: () => {
      const call = source.calls();
      return call === undefined ? undefined : (elsewhere ??= planeOver(call));
    },
    policy,
    defaults,
    actorsPerOwner,
    localManager,
    frontAccount: keys.file.front,
    managerInstance: keys.uid,
    makeDurables: (principal, uid, role) => ensureLifecycleDurables(store.nc, writer, { space, principal, uid, role }),
    makeQueue: (role) => ensureRoleQueue(store.nc, writer, space, role),
    isSwept: sweptThrough(source.calls),
    endConnections: endedThrough(source.calls),
    connectionsOf: evictedThrough(source.calls, connectionsOver(source.front)),
    ends: createTurns(),
    removeRemains: (principal, uid) => remove(source, principal, uid),
    frontiers: () => frontiersOf(store.nc, space),
    answerBytes: () => Math.min(ANSWER_BYTES, store.maxPayload - ENVELOPE_BYTES),
    ledgerPage: (bucket, filter, cursor) => ledgerPage(source, { bucket, filter, cursor, limit: PAGE }),
    tryMint: (row) => tryMint(source, row, trialUser),
    isReservedOwner: (owner) => owner === reserved,
    now: Date.now,
    random: randomBytes,
  };
}

/** What chat sessions need on top. */
export function chatParts(source: PlaneSource, parts: PlaneParts, slotsPerOwner: number): ChatParts {
  const holderPage: ChatParts["holderPage"] = (cursor, limit) =>
    ledgerPage(source, { bucket: "auth", filter: chatKey.allHolders, cursor, limit });
  return { ...parts, slotsPerOwner, holderPage };
}

async function ledgerPage(
  { space, store }: Pick<PlaneSource, "space" | "store">,
  asked: {
    readonly bucket: "auth" | "records";
    readonly filter: string;
    readonly limit: number;
    readonly cursor: number | undefined;
  },
): Promise<LedgerPage> {
  const { bucket, filter, limit, cursor } = asked;
  const page = await rowPage(store.nc, spaceNames(space).bucket[bucket], {
    filter,
    limit,
    via: "leader",
    ...(cursor === undefined ? {} : { cursor }),
  });
  const rows = page.rows.map(({ key, seq, timeMs, data, kind }) => ({
    key,
    seq,
    timeMs,
    value: kind === "marker" ? undefined : parseJson(data),
  }));
  return { rows, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

async function remove(
  { space, store, writer, cleaner }: PlaneSource,
  principal: Principal,
  uid: string,
): Promise<void> {
  const connection = await cleaner({ principal, uid });
  try {
    await removeRemains(store.nc, connection.nc, writer, { space, principal, uid });
  } finally {
    await connection.drain();
  }
}

/** The JWT that the callout would make of this row, thrown away: what it can't carry refuses here. */
async function tryMint({ space, ledger, keys, limits }: PlaneSource, row: ActorRow, userKey: string): Promise<void> {
  const { commands, serves } = await resolveCapabilities(ledger, row.capabilities);
  await mintUser({
    profile: "agent",
    scope: {
      space,
      holder: { principal: { owner: row.owner, actor: row.actor }, uid: row.lifecycleUid },
      inboxNonce: drawNonce(randomBytes),
      allowSubscribe: row.allowSubscribe,
      allowPublish: row.allowPublish,
      ...(row.role === undefined ? {} : { role: row.role }),
      commands,
      serves,
    },
    account: Account.Front,
    accountKey: keys.file.front,
    signer: keys.frontSigner,
    userKey,
    expires: Math.floor(Date.now() / 1000) + 60,
    limits: limits(),
    name: row.name,
  });
}
