/** The JWTs of an operator and of a space's three accounts, decoded (H60). */
import { type Account, type Activation, type Operator, decode } from "@nats-io/jwt";
import { describe, expect, test } from "vitest";
import { SYSTEM_EXPORT, storeExports } from "../../shared/grants/exports.ts";
import { type CalloutAccount, operatorJwt, spaceAccounts, systemJwt } from "../../shared/trust/accounts.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import { failure } from "../support/refusal.ts";

const operator = newKey("operator");
const keys = {
  front: newKey("account"),
  store: newKey("account"),
  auth: newKey("account"),
  frontSigner: newKey("account"),
  storeSigner: newKey("account"),
};
const gone = newKey("user").publicKey;
const system = newKey("account").publicKey;
const subjects = storeExports("main").map(({ subject }) => subject);

const made = async () => {
  const { front, store, auth } = await spaceAccounts(operator, "main", keys, {
    diskBytes: 1000,
    connections: 50,
    system,
    revoked: [gone],
  });
  return { front: decode<Account>(front), store: decode<Account>(store), auth: decode<Account>(auth) };
};

describe("who answers for the auth account", () => {
  const [one, two, signer] = [newKey("user").publicKey, newKey("user").publicKey, newKey("account").publicKey];
  const xkey = newCurveKey().publicKey;
  const withCallout = (callout: CalloutAccount) =>
    spaceAccounts(operator, "main", keys, { diskBytes: 1000, connections: 50, system, revoked: [gone], callout });

  test("its claims name the users, the one front account, the curve key and the signing keys", async () => {
    const claims = decode<Account>((await withCallout({ users: [one, two], xkey, signers: [signer] })).auth);
    expect(claims.nats.authorization).toEqual({
      auth_users: [one, two],
      allowed_accounts: [keys.front.publicKey],
      xkey,
    });
    expect(claims.nats.signing_keys).toEqual([signer]);
  });

  test("without a callout nothing of it is there, and with one front and store are what they were", async () => {
    const plain = await made();
    const { front, store } = await withCallout({ users: [one], xkey });
    expect(plain.auth.nats).not.toHaveProperty("authorization");
    const told = [decode<Account>(front).nats, decode<Account>(store).nats].map(withoutTokens);
    expect(told).toEqual([plain.front.nats, plain.store.nats].map(withoutTokens));
  });

  test.each([
    ["no user", { users: [], xkey }],
    ["something else as a user", { users: [one, keys.front.publicKey], xkey }],
    ["something else as a signer", { users: [one], xkey, signers: [one] }],
    ["no curve key", { users: [one], xkey: "" }],
    ["another kind of key as curve key", { users: [one], xkey: one }],
    ["a curve key with a wrong checksum", { users: [one], xkey: `X${"A".repeat(55)}` }],
  ])("%s is refused: the broker would ask nobody, or in the clear", async (_, callout) => {
    expect((await failure(withCallout(callout))).code).toBe("bad-request");
  });
});

/** Activation tokens carry a time. */
function withoutTokens(account: Partial<Account>): unknown {
  return { ...account, imports: account.imports?.map((one) => ({ ...one, token: "" })) };
}

describe("W2.01 the three accounts of a space", () => {
  test("each is signed by the operator and stands for its own key", async () => {
    const accounts = await made();
    for (const name of ["front", "store", "auth"] as const) {
      expect(accounts[name].sub).toBe(keys[name].publicKey);
      expect(accounts[name].iss).toBe(operator.publicKey);
      expect(accounts[name].name).toBe(`main.${name}`);
    }
  });

  test("W9.19 the store exports exactly the list: private, and answered once", async () => {
    const { store } = await made();
    expect(store.nats.exports?.map(({ subject }) => subject).toSorted()).toEqual(subjects.toSorted());
    for (const one of store.nats.exports ?? []) {
      expect(one).toMatchObject({ type: "service", token_req: true, response_type: "Singleton" });
    }
    // Of the system account alone, and of that the one thing that it exports.
    const { name, subject } = SYSTEM_EXPORT;
    expect(store.nats.imports).toEqual([{ name, subject, local_subject: subject, type: "service", account: system }]);
  });

  test("W9.19 the front imports the same subjects from that store, each under its own activation", async () => {
    const { front } = await made();
    expect(front.nats.exports ?? []).toEqual([]);
    expect(front.nats.imports?.map(({ subject }) => subject).toSorted()).toEqual(subjects.toSorted());
    for (const one of front.nats.imports ?? []) {
      expect(one).toMatchObject({ type: "service", account: keys.store.publicKey, local_subject: one.subject });
      const activation = decode<Activation>(one.token ?? "");
      expect(activation.sub).toBe(keys.front.publicKey);
      expect(activation.iss).toBe(keys.storeSigner.publicKey);
      expect(activation.nats).toMatchObject({
        subject: one.subject,
        kind: "service",
        issuer_account: keys.store.publicKey,
      });
    }
  });

  test("only the store has JetStream", async () => {
    const { front, store, auth } = await made();
    const none = { mem_storage: 0, disk_storage: 0, streams: 0, consumer: 0 };
    expect(front.nats.limits).toMatchObject(none);
    expect(auth.nats.limits).toMatchObject(none);
    expect(store.nats.limits).toMatchObject({ mem_storage: 0, disk_storage: 1000, streams: -1, consumer: -1 });
  });

  test("the number of connections is bounded, and no leaf node may come", async () => {
    const { front, store, auth } = await made();
    expect(front.nats.limits).toMatchObject({ conn: 50, leaf: 0 });
    for (const { nats } of [store, auth]) expect(nats.limits).toMatchObject({ leaf: 0 });
  });

  test("who was revoked stays refused in front and in store, whatever time a JWT of his names", async () => {
    const { front, store } = await made();
    const never = Date.UTC(9999, 0) / 1000;
    for (const { nats } of [front, store]) expect(nats.revocations?.[gone]).toBeGreaterThan(never);
  });

  test("users are signed by signing keys that the identity keys name", async () => {
    const { front, store, auth } = await made();
    expect(front.nats.signing_keys).toEqual([keys.frontSigner.publicKey]);
    expect(store.nats.signing_keys).toEqual([keys.storeSigner.publicKey]);
    expect(auth.nats.signing_keys ?? []).toEqual([]);
  });
});

test("W9.02 the operator names the system account, and that one has no JetStream and one export", async () => {
  const account = newKey("account");
  const signer = newKey("account");
  expect(decode<Operator>(await operatorJwt(operator, account.publicKey)).nats.system_account).toBe(account.publicKey);
  const claims = decode<Account>(await systemJwt(operator, account, signer));
  expect([claims.sub, claims.iss]).toEqual([account.publicKey, operator.publicKey]);
  expect(claims.nats).toMatchObject({ signing_keys: [signer.publicKey], limits: { disk_storage: 0, mem_storage: 0 } });
  // How many servers there are, and nothing of any account.
  expect(claims.nats.exports).toEqual([
    { name: "servers", subject: "$SYS.REQ.SERVER.PING.STATSZ", type: "service", response_type: "Stream" },
  ]);
});
