/**
 * Rows for the other daemons (H14, H45): in a space that people sign in to the auth service alone writes the
 * ledger, also for the provisioner, with real processes of both.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { ownCredential } from "../../shared/broker/own-credential.ts";
import { allRows, leaderLast } from "../../shared/broker/reads.ts";
import { createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { AuthCommand } from "../../shared/grants/commands.ts";
import { daemonPrincipal } from "../../shared/ledger/self.ts";
import { kvKey, sys } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { CredentialRow, HeadRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { IssuedList } from "../../shared/trust/issued.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const { bucket } = spaceNames("main");
let space: TestSpace;
let auth: AuthService;
let store: NatsConnection;
let secret: Buffer;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  auth = await startAuthService(space);
  store = await space.store();
  secret = Buffer.from(readFileSync(join(space.state, "spaces", "main", "auth", "owner.secret"), "utf8").trim(), "hex");
}, 60_000);
afterAll(async () => {
  await auth.stop();
  await space.stop();
});

const rowOf = async <S extends z.ZodType>(of: string, key: string, schema: S): Promise<z.infer<S> | undefined> => {
  const row = await leaderLast(store, bucketStream(of), kvKey(of, key));
  return row === undefined ? undefined : schema.parse(JSON.parse(new TextDecoder().decode(row.data)));
};

const provisioner = () => daemonPrincipal(secret, "main", "provisioner");

async function uidOf(): Promise<string> {
  const head = await rowOf(bucket.records, ledgerKey.head(provisioner()), HeadRow);
  return head?.lifecycleUid ?? "";
}

async function credentialsOf(uid: string): Promise<CredentialRow[]> {
  const rows: CredentialRow[] = [];
  for await (const row of allRows(store, bucket.auth, { filter: ledgerKey.credsOf(uid), limit: 100, via: "leader" })) {
    if (row.kind === "value") rows.push(CredentialRow.parse(JSON.parse(new TextDecoder().decode(row.data))));
  }
  return rows;
}

const Connections = z.looseObject({
  data: z.looseObject({ connections: z.array(z.looseObject({ name: z.string().optional() })) }),
});

async function storeConnections(): Promise<string[]> {
  const answer = await store.request(sys.ownConnections, JSON.stringify({}), { timeout: 5000 });
  return Connections.parse(answer.json()).data.connections.map(({ name }) => name ?? "");
}

describe("the provisioner's rows", () => {
  test("W131.02 W131L.01 its credentials are in the ledger, and it has no connection that could write one", async () => {
    const uid = await uidOf();
    const rows = await credentialsOf(uid);
    expect(rows.map(({ state, holderPrincipal }) => [state, holderPrincipal])).toEqual([
      ["active", `${provisioner().owner}.provisioner`],
      ["active", `${provisioner().owner}.provisioner`],
    ]);
    const names = await storeConnections();
    expect(names).toContain("provisioner main store");
    expect(names.filter((name) => name.startsWith("provisioner main ledger"))).toEqual([]);
    expect(names.filter((name) => name.startsWith("auth main store"))).toHaveLength(1);
  });

  test("W131L.01 what the trust program issued has its row too", async () => {
    const text = readFileSync(join(space.state, "spaces", "main", "auth", "issued.json"), "utf8");
    const [operator] = IssuedList.parse(JSON.parse(text));
    const key = ledgerKey.cred(operator?.uid ?? "", operator?.credentialId ?? "");
    expect(await rowOf(bucket.auth, key, CredentialRow)).toMatchObject({ state: "active" });
  });

  test("W131.06 a restart of it is another epoch of the same lifecycle, entered by the auth service", async () => {
    const uid = await uidOf();
    const before = await rowOf(bucket.records, ledgerKey.head(provisioner()), HeadRow);
    await space.provisioner.kill();
    await space.provisioner.restart();
    await space.provisioner.ready();
    const after = await rowOf(bucket.records, ledgerKey.head(provisioner()), HeadRow);
    expect(after?.lifecycleUid).toBe(uid);
    expect(after?.processEpoch).toBeGreaterThan(before?.processEpoch ?? 0);
    expect((await credentialsOf(uid)).length).toBe(4);
    await expect(space.call("space", {})).resolves.toMatchObject({ settings: { auth: "user" } });
  }, 30_000);

  test("without an auth service it waits and says so; it serves when there is one", async () => {
    await auth.kill();
    await space.provisioner.kill();
    await space.provisioner.restart();
    await expect(space.call("space", {}, { deadlineMs: 500 })).rejects.toThrow(/provisioner space/);
    await auth.restart();
    await space.provisioner.ready();
    await expect(space.call("space", {})).resolves.toMatchObject({ settings: { auth: "user" } });
  }, 60_000);
});

describe("who may ask", () => {
  /** A credential that may ask for rows, as the named actor of the space itself, or of somebody. */
  async function asking(owner: string, actor: string) {
    const uid = drawLifecycleUid(randomBytes);
    const folder = join(space.state, "spaces", "main");
    const signer = keyFromSeed(readFileSync(join(folder, "provisioner", "front-signer.nk"), "utf8").trim());
    const { front } = JSON.parse(readFileSync(join(folder, "provisioner", "space.json"), "utf8")) as { front: string };
    const holder = { principal: principal(owner, actor), uid };
    const own = await ownCredential({
      profile: "registrar",
      scope: { space: "main", holder, inboxNonce: drawNonce(randomBytes) },
      account: "front",
      accountKey: front,
      signer,
      nowSeconds: () => Math.floor(Date.now() / 1000),
      lifeSeconds: 60,
    });
    const connection = await openConnection({
      servers: [space.url],
      authenticator: own.authenticator,
      inboxPrefix: own.inboxPrefix,
      name: "asking",
      reconnect: { kind: "bounded", attempts: 1 },
    });
    const call = createCaller({
      nc: connection.nc,
      space: "main",
      caller: holder,
      name: actor,
      inboxPrefix: own.inboxPrefix,
      denials: watchDenials(connection.nc),
      random: randomBytes,
    });
    const enter = (expires: number) =>
      call(EndpointName.Auth, AuthCommand.DaemonEnter, {
        begin: true,
        credentials: [{ credentialId: newKey("user").publicKey, expires }],
      });
    return { uid, enter, close: () => connection.close() };
  }

  const soon = () => Math.floor(Date.now() / 1000) + 60;

  test.each([
    ["another actor of the space", () => provisioner().owner, "operator"],
    ["the auth service itself", () => provisioner().owner, "auth"],
    ["somebody's actor of that name", () => `u_${"a".repeat(26)}`, "provisioner"],
  ])("%s is refused, and nothing is written", async (_, owner, actor) => {
    const { uid, enter, close } = await asking(owner(), actor);
    expect((await failure(enter(soon()))).code).toBe("permission-denied");
    expect(await credentialsOf(uid)).toEqual([]);
    expect(await leaderLast(store, bucketStream(bucket.auth), kvKey(bucket.auth, ledgerKey.gate(uid)))).toBeUndefined();
    await close();
  });

  test("W131.05 a second provisioner under another lifecycle is refused: the first one is active", async () => {
    const { enter, close, uid } = await asking(provisioner().owner, "provisioner");
    expect((await failure(enter(soon()))).code).toBe("already-exists");
    expect(await credentialsOf(uid)).toEqual([]);
    await close();
  });

  test("a row for longer than a daemon's credential lives is refused", async () => {
    const { enter, close } = await asking(provisioner().owner, "provisioner");
    expect((await failure(enter(soon() + 90_000))).code).toBe("bad-request");
    await close();
  });

  test("W9.14 the operator's credential may not ask at all", async () => {
    const asked = space.call(AuthCommand.DaemonEnter, {}, { endpoint: EndpointName.Auth, deadlineMs: 2000 });
    expect((await failure(asked)).code).toBe("permission-denied");
  });
});

describe("PF.03 static credentials", () => {
  test.each(["agent", "observer", "admin", "channel-writer", "probe"])(
    "PF.03 none is minted as %s",
    async (profile) => {
      const before = await keysOf("cred.>");
      const userKey = newKey("user").publicKey;
      const asked = space.call("mint", { profile, owner: "acme", actor: "x", name: "x", userKey });
      expect((await failure(asked)).code).toBe("failed-precondition");
      expect(await keysOf("cred.>")).toEqual(before);
    },
  );
});

async function keysOf(filter: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const row of allRows(store, bucket.auth, { filter, limit: 100, via: "leader" })) keys.push(row.key);
  return keys.toSorted();
}
