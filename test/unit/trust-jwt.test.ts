/** User JWTs and credential files: what is minted from the matrix, and what is read back. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type User, decode, encodeUser } from "@nats-io/jwt";
import { fromPublic } from "@nats-io/nkeys";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { EXAMPLE_HOLDERS } from "../../scripts/generate/example-holders.ts";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { type BuiltProfile, PROFILES, profileRows } from "../../shared/grants/matrix.ts";
import { permissionsOf } from "../../shared/grants/permissions.ts";
import type { Account } from "../../shared/grants/row.ts";
import { formatCreds, parseCreds, readCredsFile } from "../../shared/trust/creds.ts";
import { type MintRequest, mintUser, readUserJwt } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { expectTotal, nearMiss, nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const EXPIRES = 2_000_000_000;
const account = newKey("account");
const signer = newKey("account");
const user = newKey("user");
const BUILT = Object.keys(EXAMPLE_HOLDERS) as BuiltProfile[];

const base = { accountKey: account.publicKey, signer, userKey: user.publicKey, expires: EXPIRES };
const limits = { subs: 77, payload: 4096 };

function request<Name extends BuiltProfile>(
  profile: Name,
  at: Account,
  more: Partial<MintRequest<Name>> = {},
): MintRequest<Name> {
  return { ...base, profile, scope: EXAMPLE_HOLDERS[profile], account: at, limits, ...more };
}

const everywhere = BUILT.flatMap((name) => PROFILES[name].accounts.map((at) => ({ name, at })));

describe("what is minted", () => {
  test.each(everywhere)(
    "$name in $at: the rows of the matrix, limits, an end, the principal as its name",
    async ({ name, at }) => {
      const { jwt } = await mintUser(request(name, at));
      const claims = decode<User>(jwt);
      const { principal } = EXAMPLE_HOLDERS[name].holder;
      expect(claims.name).toBe(`${principal.owner}.${principal.actor}`);
      expect(claims.sub).toBe(user.publicKey);
      expect(claims.iss).toBe(signer.publicKey);
      expect(claims.exp).toBe(EXPIRES);
      const permissions = permissionsOf(profileRows(name, EXAMPLE_HOLDERS[name]), at);
      expect(claims.nats).toMatchObject({
        issuer_account: account.publicKey,
        sub: permissions.sub,
        // H67: limits stand in every JWT.
        subs: 77,
        payload: 4096,
        data: -1,
      });
      expect(claims.nats.bearer_token ?? false).toBe(false);
      // A `resp` turns publish into deny by default and lets answers go anywhere: the callout has it, and
      // nothing else to publish; everybody else has what the matrix says.
      const answers = name === "auth-callout";
      expect(claims.nats.pub).toEqual(answers ? undefined : permissions.pub);
      expect(claims.nats.resp).toEqual(answers ? { max: 1, ttl: 10_000_000_000 } : undefined);
    },
  );

  test("the signature is the signing key's, over the first two parts", async () => {
    const { jwt } = await mintUser(request("agent", "front"));
    const [head, body, signature] = jwt.split(".");
    const signed = new TextEncoder().encode(`${head ?? ""}.${body ?? ""}`);
    expect(fromPublic(signer.publicKey).verify(signed, Buffer.from(signature ?? "", "base64url"))).toBe(true);
  });

  test("the claims mean what the stock library's would: the same JWT, signed by another hand", async () => {
    const { jwt, permissions } = await mintUser(request("agent", "front", { name: "alice", issued: 1_700_000_000 }));
    const { holder, inboxNonce } = EXAMPLE_HOLDERS.agent;
    const stock = await encodeUser(
      `${holder.principal.owner}.${holder.principal.actor}`,
      user.publicKey,
      signer.pair,
      {
        ...permissions,
        ...limits,
        data: -1,
        bearer_token: false,
        issuer_account: account.publicKey,
        tags: [
          "profile:agent",
          "space:main",
          `uid:${holder.uid}`,
          `inbox:${inboxNonce}`,
          "role:reviewer",
          `name:${Buffer.from("alice").toString("hex")}`,
        ],
      },
      { exp: EXPIRES },
    );
    const { iat, jti, ...claims } = decode<User>(jwt);
    const { iat: _iat, jti: _jti, ...expected } = decode<User>(stock);
    expect(claims).toEqual(expected);
    expect([iat, typeof jti]).toEqual([1_700_000_000, "string"]);
    expect(jwt.split(".")[0]).toBe(stock.split(".")[0]);
  });

  test.each(["", "UNKNOWN", signer.publicKey, `${user.publicKey}A`])("no JWT is made out to %j", async (userKey) => {
    await expect(mintUser(request("agent", "front", { userKey }))).rejects.toMatchObject({ code: "bad-request" });
  });

  test("an account that the profile has no rows in is refused", async () => {
    await expect(mintUser(request("agent", "store"))).rejects.toMatchObject({ code: "failed-precondition" });
    await expect(mintUser(request("ledger", "front"))).rejects.toMatchObject({ code: "failed-precondition" });
    await expect(mintUser(request("operator", "system"))).rejects.toMatchObject({ code: "failed-precondition" });
  });

  test.each(["supervisor", "toString", "__proto__", ""])("no credential is minted as %j", async (profile) => {
    await expect(
      mintUser(request(profile as "agent", "front", { scope: EXAMPLE_HOLDERS.agent })),
    ).rejects.toMatchObject({
      code: "unimplemented",
    });
  });

  test("PD.12 lists that break 16 KiB are refused at mint, with the longest channel named", async () => {
    const long = "long.".repeat(80) + "x";
    const many = Array.from({ length: 200 }, (_, at) => `team.channel-number-${at}.with-a-long-name`);
    const scope = { ...EXAMPLE_HOLDERS.agent, allowSubscribe: [...many, long], allowPublish: many };
    await expect(mintUser(request("agent", "front", { scope }))).rejects.toMatchObject({
      code: "resource-exhausted",
      outcome: "not-executed",
      message: expect.stringMatching(/longest has 401 characters: .*long\.long\./) as string,
    });
  });

  test("PD.12 one channel of 4096 characters, read and posted to, fits", async () => {
    const longest = "c".repeat(4096);
    const lists = { allowSubscribe: [longest], allowPublish: [longest] };
    // It holds a role, and no capability beside: that would have to share the room.
    const scope = { ...EXAMPLE_HOLDERS.agent, ...lists, ...NO_COMMANDS };
    const { jwt } = await mintUser(request("agent", "front", { scope }));
    expect(jwt.length).toBeLessThanOrEqual(16_384);
    expect(readUserJwt(jwt).allowPublish).toEqual([longest]);
  });
});

describe("what a credential says of its holder", () => {
  test("an agent's view is what it was minted with", async () => {
    const capabilities = ["com.example.echo@all", "serve"];
    const { jwt } = await mintUser(request("agent", "front", { name: "Alice Ω:1", capabilities }));
    expect(readUserJwt(jwt)).toEqual({
      principal: EXAMPLE_HOLDERS.agent.holder.principal,
      uid: EXAMPLE_HOLDERS.agent.holder.uid,
      inboxNonce: EXAMPLE_HOLDERS.agent.inboxNonce,
      connId: `${EXAMPLE_HOLDERS.agent.holder.uid}_${EXAMPLE_HOLDERS.agent.inboxNonce}`,
      space: "main",
      profile: "agent",
      userKey: user.publicKey,
      role: "reviewer",
      name: "Alice Ω:1",
      allowSubscribe: ["general", "team.>"],
      allowPublish: ["general"],
      capabilities,
      expires: EXPIRES,
    });
  });

  test("a space, role or name in capitals comes back as it was", async () => {
    const scope = { ...EXAMPLE_HOLDERS.agent, space: "Main-Space", role: "Re-Viewer" };
    const { jwt } = await mintUser(request("agent", "front", { scope, name: "ALICE" }));
    expect(readUserJwt(jwt)).toMatchObject({ space: "Main-Space", role: "Re-Viewer", name: "ALICE" });
  });

  test("an observer reads every channel and posts to none", async () => {
    const { jwt } = await mintUser(request("observer", "front"));
    expect(readUserJwt(jwt)).toMatchObject({ allowSubscribe: [">"], allowPublish: [], profile: "observer" });
  });

  test("a JWT of somebody else is unauthenticated, and nothing of it is repeated", async () => {
    const foreign = await encodeUser("bob", user.publicKey, signer.pair, {});
    const noTags = await encodeUser("local.bob", user.publicKey, signer.pair, { issuer_account: account.publicKey });
    const badUid = await encodeUser("local.bob", user.publicKey, signer.pair, {
      tags: ["uid:x", "inbox:y", "space:main", "profile:agent"],
    });
    for (const jwt of ["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", foreign, noTags]) {
      const error = refusal(() => readUserJwt(jwt));
      expect(error.code).toBe("unauthenticated");
      expect(`${error.message} ${error.next ?? ""}`).not.toContain(jwt === "" || jwt === "x" ? "\u0000" : jwt);
    }
    expect(["unauthenticated", "bad-request"]).toContain(refusal(() => readUserJwt(badUid)).code);
  });
});

describe("credential files", () => {
  function fileWith(text: string): string {
    const folder = mkdtempSync(join(tmpdir(), "cotal-creds-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "x.creds");
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  test("what is written is read back, and signs as the user", async () => {
    const { jwt } = await mintUser(request("agent", "front"));
    const text = formatCreds(jwt, user);
    const credential = readCredsFile(fileWith(text));
    expect(credential.jwt).toBe(jwt);
    expect(credential.view.userKey).toBe(user.publicKey);
    const nonce = new TextEncoder().encode("nonce");
    expect(fromPublic(user.publicKey).verify(nonce, credential.sign(nonce))).toBe(true);
    // The stock form, which other NATS programs read.
    expect(text).toMatch(/^-----BEGIN NATS USER JWT-----\neyJ\S+\n------END NATS USER JWT------\n/);
    expect(text).toMatch(/-----BEGIN USER NKEY SEED-----\nSU[A-Z2-7]{56}\n------END USER NKEY SEED------\n$/);
    expect(parseCreds(text.replaceAll("\n", "\r\n")).jwt).toBe(jwt);
  });

  test("a file that is cut, mixed up or no credential is refused, and no secret repeated", async () => {
    const { jwt } = await mintUser(request("agent", "front"));
    const text = formatCreds(jwt, user);
    const seed = user.seedText();
    const broken = [
      "",
      "hello",
      text.slice(0, 200),
      text.replace(seed, seed.slice(2)),
      formatCreds(jwt, newKey("user")),
      formatCreds("a.b.c", user),
    ];
    for (const one of broken) {
      const error = refusal(() => parseCreds(one));
      const said = `${error.message} ${error.next ?? ""} ${String(error.cause)}`;
      expect(["bad-request", "unauthenticated"]).toContain(error.code);
      expect(said).not.toContain(seed.slice(2, 40));
      expect(said).not.toContain(jwt);
    }
  });

  test("a missing file is not found, a huge one is refused", () => {
    const missing = refusal(() => readCredsFile("/nowhere/x.creds"));
    expect([missing.code, missing.next?.includes("cotal mint")]).toEqual(["not-found", true]);
    expect(refusal(() => readCredsFile(fileWith("x".repeat(100_000)))).code).toBe("bad-request");
  });

  test("near misses of a file are refused or read, and nothing else", async () => {
    const { jwt } = await mintUser(request("agent", "front"));
    const text = formatCreds(jwt, user);
    fc.assert(
      fc.property(nearMissText([text, jwt]), (near) => expectTotal(() => parseCreds(near))),
      { numRuns: 300 },
    );
    fc.assert(
      fc.property(nearMissText([jwt]), (near) => expectTotal(() => readUserJwt(near))),
      { numRuns: 300 },
    );
    // And a JWT whose claims are a near miss.
    const claims: unknown = JSON.parse(Buffer.from(jwt.split(".")[1] ?? "", "base64url").toString());
    const encode = (value: unknown) => Buffer.from(JSON.stringify(value) ?? "").toString("base64url");
    fc.assert(
      fc.property(nearMiss([claims]), (value) => {
        expectTotal(() => readUserJwt(`${jwt.split(".")[0] ?? ""}.${encode(value)}.c2ln`));
      }),
      { numRuns: 500 },
    );
  });

  test("the file is read again at each dial: a renewed one is taken up", async () => {
    const one = await mintUser(request("agent", "front"));
    const path = fileWith(formatCreds(one.jwt, user));
    expect(readCredsFile(path).view.expires).toBe(EXPIRES);
    const two = await mintUser(request("agent", "front", { expires: EXPIRES + 1 }));
    writeFileSync(path, formatCreds(two.jwt, user));
    expect(readCredsFile(path).view.expires).toBe(EXPIRES + 1);
  });
});
