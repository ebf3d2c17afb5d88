/**
 * Holding the authority plane of a space: the claim, the scanners that it is held by, and what only its holder does.
 *
 * Invariants
 * 1. Whoever enumerates to decide holds the plane (supplement E): the scanners come and go with the claim, and without
 *    them every such question is refused.
 * 2. The endpoint `auth` is served by whoever holds the claim, and by nobody else; what the trust program issued has
 *    its rows before.
 * 3. Each holding serves at an epoch of its own, taken after the claim, over a connection of its own: whoever heard one that
 *    held the plane before, in whatever process, takes the next for its successor (§13.2), and no other's answer for one.
 * 4. Evidence that is corrupt ends the claim: nothing is decided by rows that somebody else writes.
 */
import { randomBytes } from "node:crypto";
import type { Connection } from "../../shared/broker/connect.ts";
import type { OwnCredential } from "../../shared/broker/own-credential.ts";
import type { Writer } from "../../shared/broker/write.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import type { Holder } from "../../shared/ledger/self.ts";
import { type LedgerStore, readRow } from "../../shared/ledger/store.ts";
import type { ScannedStore } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { PlaneRow, actorKey } from "../../shared/protocol/ledger/actor-rows.ts";
import { type HandlerTable, type ServedEvent, serveEndpoint } from "../../shared/serve/serve.ts";
import { type Dialing, enter, openScanner } from "./dial.ts";
import type { ChatParts } from "./plane/chat/parts.ts";
import { type SweepEvent, createChatSweep, keepSweeping } from "./plane/chat/sweep.ts";
import { type Claim, type ClaimState, type Duty, keepClaim } from "./plane/claim.ts";
import { evidenceIn } from "./plane/evidence.ts";
import { demandMissed, livenessOf } from "./plane/liveness.ts";
import { type ResumeEvent, keepResuming } from "./plane/operations.ts";
import { noPlane } from "./plane/parts.ts";
import { type PruneParts, checkEvidence, keepPruning } from "./plane/prune-natkeys.ts";
import { type Scanners, openScanners } from "./plane/scanners.ts";
import type { EvidenceSayings } from "./say-evidence.ts";

export type HoldOptions = Dialing & {
  readonly evidence: EvidenceSayings;
  readonly chat: { readonly onSweep: (event: SweepEvent) => void };
  readonly onPlane: (state: ClaimState) => void;
  /** An end that another process had left was taken up. */
  readonly onResume: (event: ResumeEvent) => void;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
};

/** The scanners of the claim that is held; asking for them without one throws the refusal. */
export type HeldScanners = { readonly now: () => Scanners; readonly set: (held: Scanners | undefined) => void };

export function heldScanners(): HeldScanners {
  let scanners: Scanners | undefined;
  return {
    now: () => {
      if (scanners === undefined) throw noPlane();
      return scanners;
    },
    set: (held) => {
      scanners = held;
    },
  };
}

export type Serving = { readonly connection: Connection; readonly epoch: number };

export type HoldParts = {
  readonly store: Connection;
  /** A connection in front to serve with, at an epoch later than whoever held the plane before. */
  readonly serving: () => Promise<Serving>;
  readonly ledger: LedgerStore;
  readonly writer: Writer;
  readonly scanners: HeldScanners;
  readonly scannerOf: (which: ScannedStore) => Promise<OwnCredential>;
  readonly me: Holder;
  readonly chats: ChatParts;
  readonly handlers: HandlerTable;
  /** Gives what the trust program issued its rows. */
  readonly enterIssued: () => Promise<void>;
};

/** Begins to claim the plane, and does its duties while it is held. */
export async function holdPlane(options: HoldOptions, parts: HoldParts): Promise<Claim> {
  const { space, onPlane } = options;
  const { store, ledger, scanners } = parts;
  const evidence = evidenceIn(store.nc, parts.writer, space);
  await checkEvidence({ space, evidence });
  const pruning: PruneParts = {
    space,
    evidence,
    holdsPlane: () => claim.held(),
    now: Date.now,
    random: randomBytes,
    onEvent: options.evidence.onPrune,
    onBadRow: (cause) => {
      options.evidence.onFence(cause);
      void claim.stop();
    },
  };
  const claim = keepClaim({
    claimId: drawLifecycleUid(randomBytes),
    ledger,
    livenessOf: (tuple) => livenessOf(store, tuple),
    hold: async () => {
      const opened = await openScanners({
        space,
        open: async (which) => {
          const own = await parts.scannerOf(which);
          await enter(ledger, own);
          return openScanner(options, which, own);
        },
        readPlane: () => readRow(ledger, "auth", actorKey.plane, PlaneRow),
      });
      await demandMissed(store, [opened.ledger, opened.records]).catch(async (error: unknown) => {
        await opened.close();
        throw error;
      });
      return {
        ...opened,
        begin: (claimed) => {
          opened.begin(claimed);
          scanners.set(opened);
        },
        close: async () => {
          scanners.set(undefined);
          await opened.close();
        },
      };
    },
    onState: onPlane,
    whileHeld: async () => {
      await parts.enterIssued();
      return duties(options, parts, pruning);
    },
    now: Date.now,
  });
  return claim;
}

/** What only the holder of the plane does. */
async function duties(options: HoldOptions, parts: HoldParts, pruning: PruneParts): Promise<Duty> {
  const { chats } = parts;
  const served = await serve(options, parts);
  const sweeping = keepSweeping(createChatSweep(chats, options.chat.onSweep));
  const pruned = keepPruning(pruning);
  const resuming = keepResuming(chats, options.onResume);
  return {
    ended: served.ended,
    stop: async () => {
      await Promise.all([served.stop(), sweeping.stop(), pruned.stop(), resuming.stop()]);
    },
  };
}

/** Serves, and registers as soon as there is somebody to register with: the provisioner waits for this service. */
async function serve(options: HoldOptions, { serving, handlers, me }: HoldParts): Promise<Duty> {
  const { space } = options;
  const { connection, epoch } = await serving();
  const registration = keepRegistered({
    connection,
    space,
    endpoint: EndpointName.Auth,
    me,
    instanceId: me.uid,
    epoch,
  });
  try {
    const served = await serveEndpoint({
      nc: connection.nc,
      space,
      endpoint: EndpointName.Auth,
      instanceId: me.uid,
      epoch,
      contract: ownContract(EndpointName.Auth),
      handlers,
      registrationRevision: registration.revision,
      publicDescriptor: true,
      concurrency: options.concurrency,
      perCaller: options.perCaller,
      onServed: options.onServed,
      now: () => performance.now(),
    });
    registration.begin();
    return {
      ended: connection.closed,
      stop: async () => {
        await served.stop();
        await registration.end();
        await connection.drain();
      },
    };
  } catch (error) {
    await registration.end();
    await connection.close();
    throw error;
  }
}
