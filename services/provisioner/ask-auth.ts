/**
 * What this daemon asks of the auth service, in a space that people sign in to: a connection for one
 * question, under a credential that can ask for rows of the ledger and do nothing else (decision H14).
 */
import { randomBytes } from "node:crypto";
import { type ConnectOptions, openConnection } from "../../shared/broker/connect.ts";
import { ownCredential } from "../../shared/broker/own-credential.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import type { AuthCommand } from "../../shared/grants/commands.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import type { Holder } from "../../shared/ledger/self.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { ProvisionerKeys } from "./keys.ts";

export type AskAuthOptions = {
  readonly space: string;
  readonly keys: Pick<ProvisionerKeys, "file" | "frontSigner">;
  readonly me: Holder;
  /** Key of this daemon's front connection: what asks is the same user, with less to say. */
  readonly user: SigningKey;
  readonly dial: Omit<ConnectOptions, "authenticator" | "inboxPrefix">;
  readonly nowSeconds: () => number;
};

/** The answer's data, unread. Throws what the auth service refuses, and `unavailable` where none is there. */
export async function askAuth(
  { space, keys, me, user, nowSeconds, dial }: AskAuthOptions,
  command: AuthCommand,
  args: object,
  deadlineMs: number,
): Promise<unknown> {
  const { authenticator, inboxPrefix } = await ownCredential({
    profile: "registrar",
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
    return (await call(EndpointName.Auth, command, args, { deadlineMs })).data;
  } finally {
    await connection.close();
  }
}
