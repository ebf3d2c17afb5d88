/**
 * What this daemon asks of the auth service, in a space that people sign in to: a connection for one
 * question, under a credential that can ask for rows of the ledger and do nothing else (decision H14).
 */
import { type Asker, askOnce } from "../../shared/client/ask-once.ts";
import type { AuthCommand } from "../../shared/grants/commands.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { ProvisionerKeys } from "./keys.ts";

export type AskAuthOptions = Pick<Asker, "space" | "me" | "user" | "dial" | "nowSeconds"> & {
  readonly keys: Pick<ProvisionerKeys, "file" | "frontSigner">;
};

/** The answer's data, unread. Throws what the auth service refuses, and `unavailable` where none is there. */
export function askAuth(
  { keys, ...asker }: AskAuthOptions,
  command: AuthCommand,
  args: object,
  deadlineMs: number,
): Promise<unknown> {
  return askOnce(
    { ...asker, profile: "registrar", accountKey: keys.file.front, signer: keys.frontSigner },
    { endpoint: EndpointName.Auth, command, args, deadlineMs },
  );
}
