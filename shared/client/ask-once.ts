/**
 * One question under a credential of its own: a daemon that may not do anything yet asks for what it needs
 * over a connection that can say this and nothing else (§13.1, decision H14).
 *
 * Invariant: the connection is closed whatever comes of the question.
 */
import { randomBytes } from "node:crypto";
import { type ConnectOptions, openConnection } from "../broker/connect.ts";
import { ownCredential } from "../broker/own-credential.ts";
import { Life } from "../grants/matrix.ts";
import { Account } from "../grants/row.ts";
import type { Caller } from "../protocol/endpoint/grammar.ts";
import { drawNonce } from "../protocol/base/principals.ts";
import type { SigningKey } from "../trust/keys.ts";
import { createCaller } from "./caller.ts";
import { watchDenials } from "./denials.ts";

export type Asker = {
  /** Which question: each profile may ask its own and nothing else. */
  readonly profile: "daemon-entrant" | "registrar";
  readonly space: string;
  readonly me: Caller;
  /** Public key of the front account, and what signs there. */
  readonly accountKey: string;
  readonly signer: SigningKey;
  /** Key of the asker's front connection: what asks is the same user, with less to say. */
  readonly user: SigningKey;
  readonly dial: Omit<ConnectOptions, "authenticator" | "inboxPrefix">;
  readonly nowSeconds: () => number;
};

export type Question = {
  readonly endpoint: string;
  readonly command: string;
  readonly args: object;
  readonly deadlineMs: number;
};

/** The answer's data, unread. Throws what the endpoint refuses, and `unavailable` where none is there. */
export async function askOnce(asker: Asker, { endpoint, command, args, deadlineMs }: Question): Promise<unknown> {
  const { profile, space, me, accountKey, signer, user, dial, nowSeconds } = asker;
  const { authenticator, inboxPrefix } = await ownCredential({
    profile,
    scope: { space, holder: me, inboxNonce: drawNonce(randomBytes) },
    account: Account.Front,
    accountKey,
    signer,
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
    return (await call(endpoint, command, args, { deadlineMs })).data;
  } finally {
    await connection.close();
  }
}
