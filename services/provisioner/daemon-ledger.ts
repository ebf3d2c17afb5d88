/**
 * Who writes the ledger rows of this daemon's own credentials (§13.1, decision H14): itself where nobody
 * signs in, the auth service where somebody does.
 *
 * Invariants
 * 1. A credential has its row before this daemon works with it. Where it asks the auth service it comes with
 *    a credential that can ask for rows and do nothing else, and that is entered by the first thing it asks.
 * 2. In a space that people sign in to, this daemon holds no connection that could write the ledger.
 */
import type { OwnCredential } from "../../shared/broker/own-credential.ts";
import { patiently } from "../../shared/client/patiently.ts";
import type { SpaceHooks } from "../../shared/daemon/spaces.ts";
import { AuthCommand } from "../../shared/grants/commands.ts";
import { enterCredential } from "../../shared/ledger/activation.ts";
import { takeEpoch } from "../../shared/ledger/epoch.ts";
import { type Holder, activateSelf } from "../../shared/ledger/self.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { DaemonEnterAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { type AskAuthOptions, askAuth } from "./ask-auth.ts";

/** A credential and its end in Unix seconds. */
export type Entry = { readonly own: Pick<OwnCredential, "holder" | "userKey">; readonly expires: number };

export type DaemonLedger = {
  /** Activates this daemon if it is not, and takes its next epoch; enters these. */
  readonly begin: (entries: readonly Entry[]) => Promise<number>;
  readonly enter: (entries: readonly Entry[]) => Promise<void>;
};

/** In a space with static credentials. */
export function ownLedger(ledger: LedgerStore, me: Holder, ledgerHolder: Holder): DaemonLedger {
  const enter: DaemonLedger["enter"] = async (entries) => {
    for (const { own, expires } of entries) {
      await enterCredential(ledger, { ...own.holder, credentialId: own.userKey, expires });
    }
  };
  return {
    enter,
    begin: async (entries) => {
      await activateSelf(ledger, me);
      await activateSelf(ledger, ledgerHolder);
      const epoch = await takeEpoch(ledger, me.principal, me.uid);
      await enter(entries);
      return epoch;
    },
  };
}

export type AskedLedgerOptions = AskAuthOptions & {
  readonly signal: AbortSignal;
  readonly waiting: SpaceHooks["waiting"];
};

const DEADLINE_MS = 5_000;
const SILENT = "the auth service of this space does not answer";
const START_IT =
  "start it: in a space that people sign in to, it alone writes the ledger; this is tried again by itself";

/** In a space that people sign in to. */
export function askedLedger(options: AskedLedgerOptions): DaemonLedger {
  return {
    begin: async (entries) => {
      const { epoch } = await patiently({ ...options, silent: SILENT, next: START_IT }, () =>
        ask(options, true, entries),
      );
      if (epoch !== undefined) return epoch;
      throw new CotalError(ErrorCode.Internal, "the auth service gave no epoch", { next: "look at its version" });
    },
    enter: async (entries) => {
      await ask(options, false, entries);
    },
  };
}

async function ask(options: AskedLedgerOptions, begin: boolean, entries: readonly Entry[]) {
  const credentials = entries.map(({ own: { userKey }, expires }) => ({ credentialId: userKey, expires }));
  return DaemonEnterAnswer.parse(await askAuth(options, AuthCommand.DaemonEnter, { begin, credentials }, DEADLINE_MS));
}
