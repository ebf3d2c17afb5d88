/**
 * Rows for this daemon's own credentials (§13.1): it writes no ledger and asks whoever does, the auth service
 * where people sign in, the provisioner elsewhere.
 *
 * Invariant: it comes with a credential that can ask for rows and do nothing else, and that is entered by
 * the first thing it asks.
 */
import type { z } from "zod";
import { type Asker, askOnce } from "../../shared/client/ask-once.ts";
import { patiently } from "../../shared/client/patiently.ts";
import type { SpaceHooks } from "../../shared/daemon/spaces.ts";
import { AuthCommand, ProvisionerCommand } from "../../shared/grants/commands.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { DaemonEnterAnswer, type DaemonEnterArgs } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { DeliveryKeys } from "./keys.ts";

export type RowsOptions = Pick<Asker, "space" | "me" | "user" | "dial" | "nowSeconds"> & {
  readonly keys: Pick<DeliveryKeys, "file" | "frontSigner">;
  /** Key of its connection in the store. */
  readonly storeUser: SigningKey;
  readonly signal: AbortSignal;
  readonly waiting: SpaceHooks["waiting"];
};

const LEDGER = {
  user: { who: "auth service", endpoint: EndpointName.Auth, command: AuthCommand.DaemonEnter },
  static: { who: "provisioner", endpoint: EndpointName.Provisioner, command: ProvisionerCommand.DaemonEnter },
} as const;

const DEADLINE_MS = 5_000;

/** Activates this daemon if it is not, and takes its next epoch; enters the users of its connections. */
export async function beginRows(options: RowsOptions, expires: number): Promise<number> {
  const { signal, waiting, keys } = options;
  const { who } = LEDGER[keys.file.mode];
  const silent = `the ${who} of this space does not answer`;
  const next = "start it: it writes the ledger of this space; this is tried again by itself";
  const { epoch } = await patiently({ signal, waiting, silent, next }, () => ask(options, { begin: true, expires }));
  if (epoch !== undefined) return epoch;
  throw new CotalError(ErrorCode.Internal, `the ${who} gave no epoch`, { next: "look at its version" });
}

/** Enters a renewal. */
export async function enterRows(options: RowsOptions, expires: number): Promise<void> {
  await ask(options, { begin: false, expires });
}

async function ask(
  { keys, storeUser, ...asker }: RowsOptions,
  { begin, expires }: { readonly begin: boolean; readonly expires: number },
): Promise<z.infer<typeof DaemonEnterAnswer>> {
  const credentials = [asker.user, storeUser].map(({ publicKey }) => ({ credentialId: publicKey, expires }));
  const args: DaemonEnterArgs = { begin, credentials };
  const { endpoint, command } = LEDGER[keys.file.mode];
  const answer = await askOnce(
    { ...asker, profile: "daemon-entrant", accountKey: keys.file.front, signer: keys.frontSigner },
    { endpoint, command, args, deadlineMs: DEADLINE_MS },
  );
  return DaemonEnterAnswer.parse(answer);
}
