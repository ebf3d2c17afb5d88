/** What the trust program promises of a revocation: it holds, whatever runs beside it and whatever clocks say. */
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AuthorizationError, type NatsConnection, connect } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { ensureBrokerTrust, systemCredential } from "../../services/trust/broker-trust.ts";
import { connectSystem, connectedUsers } from "../../services/trust/system-account.ts";
import { Account } from "../../shared/grants/row.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { DEFAULT_LIMITS } from "../../shared/protocol/chat/space-settings.ts";
import { type Credential, formatCreds, parseCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { accountKeys } from "../support/holders.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace();
});
afterAll(() => space.stop());
afterEach(() => void vi.useRealTimers());

const login = (credential: Credential): Promise<NatsConnection> =>
  connect({
    servers: space.url,
    timeout: 3000,
    reconnect: false,
    inboxPrefix: `_INBOX_${credential.view.connId}`,
    authenticator: (nonce) => ({
      jwt: credential.jwt,
      sig: Buffer.from(credential.sign(new TextEncoder().encode(nonce ?? ""))).toString("base64url"),
    }),
  });

/** A credential as the provisioner mints one, on a machine whose clock is that many seconds ahead. */
async function mintedAhead(seconds: number): Promise<Credential> {
  const key = newKey("user");
  const { accountKey, signer } = accountKeys(space, "main", "front");
  const holder = { principal: space.operator().view.principal, uid: drawLifecycleUid(randomBytes) };
  const now = Date.now() + seconds * 1000;
  vi.useFakeTimers({ toFake: ["Date"], now });
  const { jwt } = await mintUser({
    profile: "observer",
    scope: { space: "main", holder, inboxNonce: drawNonce(randomBytes) },
    account: Account.Front,
    accountKey,
    signer,
    userKey: key.publicKey,
    expires: Math.floor(now / 1000) + 3600,
    limits: DEFAULT_LIMITS.agent,
  });
  vi.useRealTimers();
  return parseCreds(formatCreds(jwt, key));
}

const revoke = (...users: readonly string[]): Promise<Record<string, unknown>> =>
  space.trust("revoke", "--space", "main", "--server", space.url, "--users", users.join(","));

describe("a revoked key", () => {
  test("is refused with any JWT, also one from a clock that is ahead, or minted while the end was under way", async () => {
    const early = await mintedAhead(900);
    await (await login(early)).close();
    await revoke(early.view.userKey);
    await expect(login(early)).rejects.toThrow(AuthorizationError);
  });

  test("stays refused, whatever other revocations and pushes run at the same time", async () => {
    const gone = await Promise.all(Array.from({ length: 6 }, () => mintedAhead(0)));
    for (const one of gone) await (await login(one)).close();
    const others = Array.from({ length: 2 }, () => space.trust("space", "--space", "main", "--server", space.url));
    await Promise.all([...gone.map(({ view }) => revoke(view.userKey)), ...others]);
    for (const one of gone) await expect(login(one)).rejects.toThrow(AuthorizationError);
  }, 60_000);
});

describe("what is no revocation", () => {
  test.each(["*", "", "operator", "UAAA"])("%j is no user key, and nothing is written", async (user) => {
    await expect(revoke(user)).rejects.toThrow(/Command failed/);
    await space.call("space", {});
  });

  test("a folder without the broker's trust is refused, and stays as it is", async () => {
    const state = mkdtempSync(join(tmpdir(), "cotal-no-trust-"));
    onTestFinished(() => rmSync(state, { recursive: true, force: true }));
    const key = newKey("user").publicKey;
    const elsewhere = space.trust("revoke", "--state", state, "--space", "main", "--server", space.url, "--users", key);
    await expect(elsewhere).rejects.toThrow(/Command failed/);
    expect(existsSync(join(state, "trust"))).toBe(false);
    expect(existsSync(join(state, "spaces"))).toBe(false);
  });

  test("a broker that is frozen is told as away, and the program ends", async () => {
    space.broker.freeze();
    try {
      await expect(space.trust("servers", "--server", space.url)).rejects.toMatchObject({
        code: 3,
        stdout: expect.stringContaining("no login within") as string,
      });
    } finally {
      space.broker.thaw();
    }
  }, 25_000);

  test("silence of the broker proves nobody gone", async () => {
    const trust = await ensureBrokerTrust(space.state);
    const connection = await connectSystem(space.url, await systemCredential(trust, Math.floor(Date.now() / 1000)));
    space.broker.freeze();
    try {
      expect((await failure(connectedUsers(connection, [newKey("user").publicKey]))).code).toBe("unavailable");
    } finally {
      space.broker.thaw();
      await connection.close();
    }
  });
});
