/**
 * Staying signed in: when a token is renewed, what a provider may do meanwhile, and who of several
 * processes asks it. A real provider, which ends a sign-in whose refresh token is used twice.
 */
import { spawn } from "node:child_process";
import { readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { loginPath, readLogin, writeLogin } from "../../cli/login-file.ts";
import { holdingLogin } from "../../cli/login-lock.ts";
import { freshIdToken, isDue } from "../../cli/oidc/renew.ts";
import { revokeSignIn } from "../../cli/oidc/revoke.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { identify, ownIdentity } from "../../launcher/process-identity.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { type Kept, NATIVE_CLIENT, keptSignIn, sayingToken } from "../support/native-client.ts";
import { failure } from "../support/refusal.ts";
import { sleep } from "../support/vitals.ts";

let idp: IdentityProvider;
let kept: Kept;
let before: { readonly granted: number; readonly refused: number };

beforeAll(async () => {
  idp = await startIdentityProvider({ native: [NATIVE_CLIENT] });
});
beforeEach(async () => {
  // Of its own for each test: the provider ends all that one consent gave.
  kept = await keptSignIn(idp, `alice-${Math.random()}`);
  before = { granted: idp.granted.length, refused: idp.refused.length };
});
afterEach(() => {
  idp.intercept = undefined;
  rmSync(kept.place.state, { recursive: true });
});
afterAll(() => idp.stop());

const fresh = (): Promise<string> => freshIdToken(kept.place, kept.login());
const renewals = (): { granted: number; refused: number } => ({
  granted: idp.granted.length - before.granted,
  refused: idp.refused.length - before.refused,
});
const subject = (): string => {
  const [, claims = ""] = kept.login().idToken.split(".");
  return (JSON.parse(Buffer.from(claims, "base64url").toString()) as { sub: string }).sub;
};
/** The ID token is over, or ends soon. */
const aged = (left = -1): string => {
  const idToken = sayingToken(subject(), 300 - left, left);
  kept.write({ idToken });
  return idToken;
};
const failing = (path: string, status = 503): void => {
  idp.intercept = ({ url }, response) => {
    if (url !== path) return false;
    response.writeHead(status, { "content-type": "application/json" }).end("{}");
    return true;
  };
};
const OVER = { code: ErrorCode.Unauthenticated, next: "sign in again: cotal login" };

describe("when", () => {
  test("a token is renewed between 60 and 75 % of its life, at a place of its own, and from there on always", () => {
    const token = sayingToken("x", 0, 1000);
    const now = Math.floor(Date.now() / 1000) * 1000;
    const dueAt = (random: number): number => {
      let seconds = 0;
      while (!isDue(token, random, now + seconds * 1000)) seconds += 1;
      return seconds;
    };
    expect(dueAt(0)).toBeGreaterThanOrEqual(600);
    expect(dueAt(0)).toBeLessThanOrEqual(602);
    expect(dueAt(0.999)).toBeGreaterThan(dueAt(0) + 100);
    expect(dueAt(0.999)).toBeLessThanOrEqual(752);
    for (const seconds of [752, 1000, 1001, 100_000]) expect(isDue(token, 0.999, now + seconds * 1000)).toBe(true);
  });

  test("one that is young is used as it is, and nobody is asked", async () => {
    const { idToken, refreshToken } = kept.login();
    expect(await fresh()).toBe(idToken);
    expect(kept.login().refreshToken).toBe(refreshToken);
    expect(renewals()).toEqual({ granted: 0, refused: 0 });
  });
});

describe("renewal", () => {
  test("gives a new ID token and keeps the rotated refresh token, time and again", async () => {
    for (let round = 1; round <= 3; round += 1) {
      const { refreshToken } = kept.login();
      const old = aged();
      const idToken = await fresh();
      expect(idToken).not.toBe(old);
      expect(kept.login()).toMatchObject({ idToken, issuer: idp.issuer, clientId: NATIVE_CLIENT });
      expect(kept.login().refreshToken).not.toBe(refreshToken);
      expect(renewals()).toEqual({ granted: round, refused: 0 });
    }
    expect(statSync(loginPath(kept.place)).mode & 0o777).toBe(0o600);
  });

  test("a rotated refresh token is kept before anything else can fail", async () => {
    const { refreshToken } = kept.login();
    const old = aged();
    failing("/jwks");
    expect(await failure(fresh())).toMatchObject({ code: ErrorCode.Unavailable });
    expect(kept.login().refreshToken).not.toBe(refreshToken);
    expect(kept.login().idToken).toBe(old);
    idp.intercept = undefined;
    expect(await fresh()).not.toBe(old);
    expect(renewals()).toEqual({ granted: 2, refused: 0 });
  });

  test("a provider that is away ends nothing: the token is used while it lives, and nothing that is over", async () => {
    const alive = aged(60);
    failing("/token");
    expect(await fresh()).toBe(alive);
    aged();
    const error = await failure(fresh());
    expect(error).toMatchObject({ code: ErrorCode.Unavailable });
    expect(error.message).toContain(new URL(idp.issuer).host);
    expect(kept.login().refreshToken).toMatch(/./);
    idp.intercept = undefined;
    expect(await fresh()).toBe(kept.login().idToken);
  });

  test("a token that the provider gave for somebody else is not taken", async () => {
    const theirs = sayingToken("somebody-else", 300, -1);
    kept.write({ idToken: theirs });
    expect(await failure(fresh())).toMatchObject({ code: ErrorCode.Unauthenticated });
    expect(kept.login().idToken).toBe(theirs);
  });
});

describe("a sign-in that is over", () => {
  test("a refresh token that was revoked is asked with once, by whom ever, and the end is said", async () => {
    await idp.revoke(kept.login().refreshToken ?? "", NATIVE_CLIENT);
    aged();
    expect(await failure(fresh())).toMatchObject(OVER);
    expect(kept.login()).not.toHaveProperty("refreshToken");
    expect(await failure(fresh())).toMatchObject(OVER);
    expect(renewals()).toEqual({ granted: 0, refused: 1 });
  });

  test("what is left of the ID token is used up first", async () => {
    await idp.revoke(kept.login().refreshToken ?? "", NATIVE_CLIENT);
    const alive = aged(60);
    expect(await fresh()).toBe(alive);
    expect(await fresh()).toBe(alive);
    expect(renewals()).toEqual({ granted: 0, refused: 1 });
  });

  test("who signed out meanwhile stays signed out", async () => {
    const login = { ...kept.login(), idToken: sayingToken("x", 300, -1) };
    writeLogin(kept.place, { v: 1, kind: "out" });
    expect(await failure(freshIdToken(kept.place, login))).toMatchObject(OVER);
    expect(readLogin(kept.place)).toEqual({ v: 1, kind: "out" });
    expect(renewals()).toEqual({ granted: 0, refused: 0 });
  });

  test("without a refresh token it ends with the ID token", async () => {
    const { refreshToken: _, ...login } = kept.login();
    writeLogin(kept.place, login);
    expect(await fresh()).toBe(login.idToken);
    aged();
    expect(await failure(fresh())).toMatchObject(OVER);
  });

  test("a revoked sign-in is dead at the provider", async () => {
    const login = { ...kept.login(), refreshToken: kept.login().refreshToken ?? "" };
    expect(await revokeSignIn(login)).toBe("revoked");
    aged();
    expect(await failure(fresh())).toMatchObject(OVER);
  });
});

describe("several at once", () => {
  test("one asks, all have what it got, and the sign-in lives on", async () => {
    aged();
    const login = kept.login();
    const tokens = await Promise.all(Array.from({ length: 8 }, () => freshIdToken(kept.place, login)));
    expect(new Set(tokens).size).toBe(1);
    expect(renewals()).toEqual({ granted: 1, refused: 0 });
    aged();
    await fresh();
    expect(renewals()).toEqual({ granted: 2, refused: 0 });
  });

  test("where the lock can't be seen, who is refused takes what the other has got", async () => {
    const { refreshToken = "" } = kept.login();
    const old = aged();
    let other = "";
    idp.intercept = ({ url }) => {
      if (url !== "/token" || other !== "") return false;
      // Another machine on the same folder: it was faster, with the same refresh token.
      other = sayingToken(subject(), 0, 300);
      kept.write({ idToken: other, refreshToken: "of-the-other" });
      return false;
    };
    await idp.revoke(refreshToken, NATIVE_CLIENT);
    expect(await fresh()).toBe(other);
    expect(other).not.toBe(old);
    expect(kept.login().refreshToken).toBe("of-the-other");
  });

  test("the lock is held by one call at a time, and leaves nothing behind", async () => {
    let inside = 0;
    let most = 0;
    let runs = 0;
    const enter = (): Promise<void> =>
      holdingLogin(kept.place, async () => {
        inside += 1;
        most = Math.max(most, inside);
        await sleep(5);
        inside -= 1;
        runs += 1;
      });
    await Promise.all(Array.from({ length: 12 }, enter));
    await expect(holdingLogin(kept.place, () => Promise.reject(new Error("inside")))).rejects.toThrow("inside");
    expect([most, runs]).toEqual([1, 12]);
    expect(locks()).toEqual([]);
  });

  test("the lock is held by one process at a time", async () => {
    const holder = join(import.meta.dirname, "..", "support", "login-holder.ts");
    const ends = Array.from({ length: 3 }, () => {
      const child = spawn(process.execPath, [holder, kept.place.state, "60"], { stdio: ["ignore", "ignore", "pipe"] });
      let said = "";
      child.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
      return new Promise<[number | null, string]>((resolve) => child.once("close", (code) => resolve([code, said])));
    });
    expect(await Promise.all(ends)).toEqual([
      [0, ""],
      [0, ""],
      [0, ""],
    ]);
    expect(locks()).toEqual([]);
  }, 60_000);

  test("a process that was killed holds nothing; one that lives and hangs is waited for, not for ever", async () => {
    const child = spawn("sleep", ["60"]);
    const dead = identify(child.pid ?? 0);
    child.kill("SIGKILL");
    await new Promise((resolve) => child.once("exit", resolve));
    writeFileSync(lock("0123456789abcdef"), JSON.stringify(dead));
    writeFileSync(lock("fedcba9876543210"), "half a fi");
    expect(await holdingLogin(kept.place, () => Promise.resolve("in"))).toBe("in");
    expect(locks()).toEqual([]);
    writeFileSync(lock("0123456789abcdef"), JSON.stringify(ownIdentity()));
    const waiting = holdingLogin(kept.place, () => Promise.resolve("in"), 300);
    expect(await failure(waiting)).toMatchObject({ code: ErrorCode.Unavailable });
  });

  const lock = (name: string): string => join(dirname(loginPath(kept.place)), `login.lock.${name}`);
  const locks = (): string[] =>
    readdirSync(dirname(loginPath(kept.place))).filter((name) => name.startsWith("login.lock"));
});
