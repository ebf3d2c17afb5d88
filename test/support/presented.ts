/** What opens the broker, presented once: is it let in? */
import { randomBytes } from "node:crypto";
import { openConnection } from "../../shared/broker/connect.ts";
import type { Exchanged } from "../../shared/client/exchange.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { connId, drawNonce } from "../../shared/protocol/base/principals.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";

const reconnect = { kind: "single", attempts: 1 } as const;

/** Dials with a bearer, and the sentinel that it came with; throws what the broker says. */
export async function presentBearer(server: string, exchanged: Exchanged): Promise<void> {
  const { bearer, sentinel, lifecycleUid: uid } = exchanged;
  const nonce = drawNonce(randomBytes);
  const connection = await openConnection({
    servers: [server],
    authenticator: { jwt: () => sentinel, token: () => bearer },
    inboxPrefix: inboxPrefix(uid, nonce),
    name: connId(uid, nonce),
    reconnect,
  });
  await connection.close();
}

/** Dials with a credential file. */
export async function presentFile(server: string, path: string): Promise<void> {
  const { jwt, sign, view } = readCredsFile(path);
  const connection = await openConnection({
    servers: [server],
    authenticator: { jwt: () => jwt, sign },
    inboxPrefix: inboxPrefix(view.uid, view.inboxNonce),
    name: "test",
    reconnect,
  });
  await connection.close();
}
