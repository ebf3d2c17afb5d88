/** The development issuer: one person, kept; off unless asked for; and nobody else's word. */
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { authConfig } from "../../services/auth/config.ts";
import { type DevIssuer, createDevIssuer } from "../../services/auth/dev-issuer.ts";
import type { IdentityProvider } from "../../services/auth/edge/idp.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";

const folder = mkdtempSync(join(tmpdir(), "cotal-dev-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let now = Date.now();
const issuerOf = (space: string, at = folder): Promise<DevIssuer> =>
  createDevIssuer({ folder: join(at, space), space, now: () => now });
const verify = (issuer: DevIssuer, token: string) => issuer.beside(undefined).verify(token);

describe("its tokens", () => {
  test("prove one person, the same after every restart, and another in another space", async () => {
    const first = await issuerOf("main");
    const person = await verify(first, await first.token());
    expect(person).toMatchObject({ ok: true, person: { issuer: "https://dev-issuer.cotal.invalid/main" } });
    const again = await issuerOf("main");
    expect(await verify(again, await again.token())).toEqual(person);
    expect(await verify(again, await first.token())).toEqual(person);
    const other = await issuerOf("lab");
    expect(await verify(other, await other.token())).not.toEqual(person);
  });

  test("are worth nothing in another space, after minutes, or with another signature", async () => {
    const [main, lab] = [await issuerOf("main"), await issuerOf("lab")];
    const token = await main.token();
    expect(await verify(lab, token)).toEqual({ ok: false, fault: "wrong-issuer" });
    const [head = "", body = ""] = token.split(".");
    expect((await verify(main, `${head}.${body}.${"A".repeat(86)}`)).ok).toBe(false);
    const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
    expect(await verify(main, `${none}.${body}.`)).toMatchObject({ ok: false, fault: "wrong-algorithm" });
    now += 400_000;
    expect(await verify(main, token)).toEqual({ ok: false, fault: "expired" });
    now -= 400_000;
  });

  test("of another issuer go to that issuer's own check, and bytes that are none to nobody's harm", async () => {
    const asked: string[] = [];
    const idp: IdentityProvider = {
      verify: (token) => {
        asked.push(token);
        return Promise.resolve({ ok: false, fault: "bad-signature" });
      },
    };
    const dev = await issuerOf("main");
    const foreign = `e30.${Buffer.from(JSON.stringify({ iss: "https://login.example" })).toString("base64url")}.x`;
    expect(await dev.beside(idp).verify(foreign)).toEqual({ ok: false, fault: "bad-signature" });
    await dev.beside(idp).verify(await dev.token());
    expect(asked).toEqual([foreign]);
    for (const junk of ["", ".", "...", "a.b", "é.é.é", "e30.W10.x"]) {
      expect(await dev.beside(undefined).verify(junk)).toEqual({ ok: false, fault: "wrong-issuer" });
    }
  });
});

test("its key and its person are for their owner alone, and its route asks for the capability", async () => {
  const dev = await issuerOf("main");
  const files = readdirSync(join(folder, "main"));
  expect(files.toSorted()).toEqual(["dev-issuer.jwk", "dev-person"]);
  expect(files.map((name) => statSync(join(folder, "main", name)).mode & 0o777)).toEqual([0o600, 0o600]);
  expect(dev.routes.map(({ path, guarded }) => [path, guarded])).toEqual([
    ["/dev/token", true],
    ["/dev/jwks", false],
  ]);
  const jwks = await dev.routes[1]?.handle(undefined, { face: Face.Loopback, address: undefined });
  expect(JSON.stringify(jwks)).not.toContain('"d"');
});

test("it is off unless asked for", () => {
  expect(authConfig.read({ env: {} }).values.devIssuer).toBe(false);
});
