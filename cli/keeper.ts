/** How `cotal backup` and `cotal restore` connect: with a credential for one run, to the store alone. */
import type { ConnectOptions, ReconnectPolicy } from "../shared/broker/connect.ts";
import { inboxPrefix } from "../shared/protocol/base/broker-subjects.ts";
import type { Credential } from "../shared/trust/creds.ts";

export function keeperOptions(server: string, credential: Credential, reconnect: ReconnectPolicy): ConnectOptions {
  return {
    servers: [server],
    authenticator: { jwt: () => credential.jwt, sign: credential.sign },
    inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
    name: "cotal backup",
    reconnect,
    ...(server.startsWith("tls:") ? { tls: {} } : {}),
  };
}
