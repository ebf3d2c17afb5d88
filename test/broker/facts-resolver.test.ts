/** Facts about the account resolver that trust setup and revocation rest on. */
import { AuthorizationError, type NatsConnection } from "@nats-io/transport-node";
import { createAccount, createUser, encodeAccount, encodeUser } from "@nats-io/jwt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type BareOperator, NO_LIMITS, startBareOperator } from "../support/bare-operator.ts";

let broker: BareOperator;
let system: NatsConnection;

beforeAll(async () => {
  broker = await startBareOperator(() => Promise.resolve({ A: { limits: NO_LIMITS } }), ["A", "LATER"]);
  system = await broker.system();
});
afterAll(() => broker.end());

const lookup = async (account: string): Promise<string> =>
  (await system.request(`$SYS.REQ.ACCOUNT.${account}.CLAIMS.LOOKUP`, "", { timeout: 5000 })).string();

test("an account that nobody knows stalls a login for the resolver's timeout, and is then refused", async () => {
  const user = await broker.user("LATER");
  await expect(broker.login(user, { timeout: 5000 })).rejects.toThrow(AuthorizationError);
});

test("pushed claims hold at once: 200, and a user of the new account connects", async () => {
  expect(await broker.push("LATER", { limits: NO_LIMITS })).toBe(200);
  const nc = await broker.login(await broker.user("LATER"));
  expect(nc.isClosed()).toBe(false);
});

test("the store takes a self-signed JWT over the operator's: what is held must be compared after each push", async () => {
  const key = broker.accounts.get("A");
  const before = await lookup(key?.getPublicKey() ?? "");
  const code = await broker.push("A", { limits: { ...NO_LIMITS, conn: 1 } }, key);
  const after = await lookup(key?.getPublicKey() ?? "");
  expect([code, after === before]).toEqual([200, false]);
  expect(await broker.push("A", { limits: NO_LIMITS })).toBe(200);
});

test("a whole account signed by itself lets nobody in: its users are refused", async () => {
  const account = createAccount();
  const jwt = await encodeAccount("SELF", account, { limits: NO_LIMITS });
  await system.request("$SYS.REQ.CLAIMS.UPDATE", jwt, { timeout: 5000 });
  const key = createUser();
  const user = { key, publicKey: key.getPublicKey(), jwt: await encodeUser("u", key, account) };
  await expect(broker.login(user, { timeout: 5000 })).rejects.toThrow(AuthorizationError);
});

test("an account is not deleted where allow_delete is off", async () => {
  const { encode, Algorithms } = await import("@nats-io/jwt");
  const id = broker.accounts.get("LATER")?.getPublicKey() ?? "";
  const claim = {
    aud: "",
    jti: "x",
    iat: Math.floor(Date.now() / 1000),
    iss: broker.operator.getPublicKey(),
    name: "delete",
    sub: broker.operator.getPublicKey(),
    nats: { accounts: [id], type: "generic", version: 2 },
  };
  const jwt = await encode(Algorithms.v2, claim, broker.operator);
  await system.request("$SYS.REQ.CLAIMS.DELETE", jwt, { timeout: 2000 }).catch(() => undefined);
  expect(await lookup(id)).toMatch(/^eyJ/);
});
