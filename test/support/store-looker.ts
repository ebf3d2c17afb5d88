/** Everything of a store account, for looking: a test's own user, made from the keys in a state folder. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { encodeUser } from "@nats-io/jwt";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { ProvisionerFile, keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";

export async function lookInto(state: string, url: string, space = "main"): Promise<Connection> {
  const paths = trustPaths(state);
  const signer = keptKey(join(paths.provisioner(space), ProvisionerFile.StoreSigner), "account");
  const account = keptKey(join(paths.spaceTrust(space), "store.nk"), "account");
  const user = newKey("user");
  const jwt = await encodeUser("looker", user.publicKey, signer.pair, { issuer_account: account.publicKey });
  return openConnection({
    servers: [url],
    authenticator: { jwt: () => jwt, sign: user.sign },
    inboxPrefix: inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes)),
    name: "test store",
    reconnect: { kind: "endless" },
  });
}
