/** A space that people sign in to, as the trust program makes it: keys, files, accounts. */
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decode, encodeAccount } from "@nats-io/jwt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { gatherOver } from "../../shared/broker/gather.ts";
import { serversOf } from "../../shared/broker/servers.ts";
import { AuthFile, AuthSpaceFile } from "../../shared/trust/auth-folder.ts";
import { keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { keyFromSeed } from "../../shared/trust/keys.ts";
import { curveKeyFromSeed } from "../../shared/trust/xkey.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let folder: string;

beforeAll(async () => {
  space = await startSpace();
  await space.trust("space", "--space", "signed", "--auth", "user", "--server", space.url);
  folder = trustPaths(space.state).auth("signed");
});
afterAll(() => space.stop());

const text = (file: string): string => readFileSync(join(folder, file), "utf8").trim();
const files = (): string[] => readdirSync(folder).toSorted();

test("the auth service's folder holds every file, for its owner alone", () => {
  // The development issuer draws its person when it is first needed.
  const made = Object.values(AuthFile).filter((file) => file !== AuthFile.DevPerson);
  expect(files()).toEqual(made.toSorted());
  for (const file of files()) expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
  expect(statSync(folder).mode & 0o777).toBe(0o700);
});

test("a second run changes no key, and a space keeps the mode it was made with", async () => {
  const before = files().map(text);
  await space.trust("space", "--space", "signed", "--server", space.url);
  expect(files().map(text)).toEqual(before);
  for (const args of [
    ["--space", "signed", "--auth", "static"],
    ["--space", "main", "--auth", "user"],
  ]) {
    await expect(space.trust("space", ...args, "--server", space.url)).rejects.toMatchObject({ code: 1 });
  }
});

test("the broker's auth account names the callout user, its curve key and that one front", async () => {
  const { auth, front } = AuthSpaceFile.parse(JSON.parse(text(AuthFile.Space)));
  const held = readFileSync(join(space.state, "broker", "accounts", `${auth}.jwt`), "utf8");
  const claims = decode(held) as unknown as { nats: { authorization: object; signing_keys: string[] } };
  expect(claims.nats.authorization).toEqual({
    auth_users: [keyFromSeed(text(AuthFile.CalloutUser)).publicKey],
    allowed_accounts: [front],
    xkey: curveKeyFromSeed(text(AuthFile.Curve)).publicKey,
  });
  expect(claims.nats.signing_keys).toEqual([keyFromSeed(text(AuthFile.AuthSigner)).publicKey]);
});

test("a system account from before the plane knew the servers is signed anew, and taken up by the broker at its next start", async () => {
  const paths = trustPaths(space.state);
  const config = join(space.state, "broker", "nats-server.conf");
  const [operator, system, signer] = [
    keptKey(paths.operatorKey, "operator"),
    keptKey(paths.systemKey, "account"),
    keptKey(paths.systemSigner, "account"),
  ];
  const now = readFileSync(paths.systemJwt, "utf8").trim();
  const claims = { limits: { conn: -1, subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true } };
  const before = await encodeAccount(
    "SYS",
    system.pair,
    { ...claims, signing_keys: [signer.publicKey] },
    { signer: operator.pair },
  );
  const known = async () => {
    const store = await space.openStore();
    const { servers } = await serversOf(gatherOver(store));
    await store.close();
    return servers.length;
  };
  const startsWith = async (text: string): Promise<void> => {
    await space.broker.kill();
    writeFileSync(config, text);
    await space.broker.restart();
  };
  const text = readFileSync(config, "utf8");
  rmSync(join(space.state, "broker", "accounts", `${system.publicKey}.jwt`));
  writeFileSync(paths.systemJwt, before);
  await startsWith(text.replace(now, before));
  expect(await known()).toBe(0);
  await space.trust("init", "--host", "127.0.0.1", "--port", String(space.broker.port));
  expect(decode(readFileSync(paths.systemJwt, "utf8").trim())).toMatchObject({
    nats: { exports: [{ name: "servers" }] },
  });
  // A second time nothing changes.
  const anew = readFileSync(config, "utf8");
  await space.trust("init", "--host", "127.0.0.1", "--port", String(space.broker.port));
  expect(readFileSync(config, "utf8")).toBe(anew);
  await startsWith(anew);
  expect(await known()).toBe(1);
}, 60_000);

test("PH.01 a broker that gives a login longer than the proof of an end waits is refused, and taken once it does not", async () => {
  const config = join(space.state, "broker", "nats-server.conf");
  const before = readFileSync(config, "utf8");
  const again = () => space.trust("space", "--space", "signed", "--server", space.url);
  const startsWith = async (text: string): Promise<void> => {
    await space.broker.kill();
    writeFileSync(config, text);
    await space.broker.restart();
  };
  // What `tls { timeout: 5 }` makes of it.
  await startsWith(`${before}\nauthorization { timeout: 6 }\n`);
  await expect(again()).rejects.toMatchObject({ stdout: expect.stringContaining("a login may take 6 s") as unknown });
  await startsWith(before);
  await again();
}, 60_000);

test("the broker of a state folder has what it acknowledged on the disk a second later", async () => {
  const found = await space.trust("servers", "--server", space.url);
  expect(found).toMatchObject({ servers: [{ store: { syncSeconds: 1 } }] });
});
