/**
 * Rows for this daemon's own credentials (§13.1): it writes no ledger and asks whoever does, the auth service
 * where people sign in, the provisioner elsewhere.
 *
 * Invariant: it comes with a credential that can ask for rows and do nothing else, and that is entered by
 * the first thing it asks.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type ConnectOptions, openConnection } from "../../shared/broker/connect.ts";
import { ownCredential } from "../../shared/broker/own-credential.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import type { SpaceHooks } from "../../shared/daemon/spaces.ts";
import { AuthCommand, ProvisionerCommand } from "../../shared/grants/commands.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import type { Holder } from "../../shared/ledger/self.ts";
import { CotalError, ErrorCode, toCotalError } from "../../shared/protocol/base/errors.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import { DaemonEnterAnswer, type DaemonEnterArgs } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { DeliveryKeys } from "./keys.ts";

export type RowsOptions = {
  readonly space: string;
  readonly keys: Pick<DeliveryKeys, "file" | "frontSigner">;
  readonly me: Holder;
  /** Key of this daemon's front connection: what asks is the same user, with less to say. */
  readonly user: SigningKey;
  /** Key of its connection in the store. */
  readonly storeUser: SigningKey;
  /** Key of the connection that writes the membership feed. */
  readonly feedUser: SigningKey;
  readonly dial: Omit<ConnectOptions, "authenticator" | "inboxPrefix">;
  readonly signal: AbortSignal;
  readonly waiting: SpaceHooks["waiting"];
  readonly nowSeconds: () => number;
};

const LEDGER = {
  user: { who: "auth service", endpoint: EndpointName.Auth, command: AuthCommand.DaemonEnter },
  static: { who: "provisioner", endpoint: EndpointName.Provisioner, command: ProvisionerCommand.DaemonEnter },
} as const;

const DEADLINE_MS = 5_000;
/** How long a start waits for a daemon that starts beside it. */
const WAIT_MS = 60_000;
/** A wait is news only when it lasts. */
const NEWS_AFTER_MS = 3_000;
const LOOK_MS = 200;

/** Activates this daemon if it is not, and takes its next epoch; enters the users of its connections. */
export async function beginRows(options: RowsOptions, expires: number): Promise<number> {
  const { epoch } = await withPatience(options, () => ask(options, { begin: true, expires }));
  if (epoch !== undefined) return epoch;
  const { who } = LEDGER[options.keys.file.mode];
  throw new CotalError(ErrorCode.Internal, `the ${who} gave no epoch`, { next: "look at its version" });
}

/** Enters a renewal. */
export async function enterRows(options: RowsOptions, expires: number): Promise<void> {
  await ask(options, { begin: false, expires });
}

async function ask(
  { space, keys, me, user, storeUser, feedUser, nowSeconds, dial }: RowsOptions,
  { begin, expires }: { readonly begin: boolean; readonly expires: number },
) {
  const { authenticator, inboxPrefix } = await ownCredential({
    profile: "daemon-entrant",
    scope: { space, holder: me, inboxNonce: drawNonce(randomBytes) },
    account: Account.Front,
    accountKey: keys.file.front,
    signer: keys.frontSigner,
    user,
    lifeSeconds: Life.OneShot,
    nowSeconds,
  });
  const connection = await openConnection({ ...dial, authenticator, inboxPrefix });
  try {
    const call = createCaller({
      nc: connection.nc,
      space,
      caller: me,
      name: me.principal.actor,
      inboxPrefix,
      denials: watchDenials(connection.nc),
      random: randomBytes,
    });
    const { endpoint, command } = LEDGER[keys.file.mode];
    const credentials = [user, storeUser, feedUser].map(({ publicKey }) => ({ credentialId: publicKey, expires }));
    const args: DaemonEnterArgs = { begin, credentials };
    return DaemonEnterAnswer.parse((await call(endpoint, command, args, { deadlineMs: DEADLINE_MS })).data);
  } finally {
    await connection.close();
  }
}

/** All daemons of a space start at once: who writes the ledger comes a moment later. */
async function withPatience<T>({ keys, signal, waiting }: RowsOptions, run: () => Promise<T>): Promise<T> {
  const { who } = LEDGER[keys.file.mode];
  const silent = `the ${who} of this space does not answer`;
  const next = "start it: it writes the ledger of this space; this is tried again by itself";
  const began = Date.now();
  let isTold = false;
  for (;;) {
    try {
      return await run();
    } catch (thrown) {
      const error = toCotalError(thrown);
      const absent = error.code === ErrorCode.Unavailable || error.code === ErrorCode.DeadlineExceeded;
      const waited = Date.now() - began;
      if (!absent) throw error;
      if (signal.aborted || waited > WAIT_MS) throw new CotalError(error.code, silent, { next, cause: error });
      if (waited > NEWS_AFTER_MS && !isTold) {
        isTold = true;
        waiting(silent, next);
      }
      await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}
