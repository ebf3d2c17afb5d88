/** Looking through everything that a run printed: what counts as a secret there, and what does not. */
import { execFileSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { KNOWN, PRINTED_FOLDER, digestOf, findLeaks, leaksIn } from "../../scripts/test/secrets.ts";
import { type BearerClaims, bearerSigner, newBearerJwk, signBearer } from "../../shared/trust/bearer.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";

const NOBODY: ReadonlySet<string> = new Set();
const kinds = (text: string, known = NOBODY): string[] => leaksIn(text, known, "x").map(({ kind }) => kind);

const jwk = newBearerJwk();
const claims: BearerClaims = {
  iss: "i",
  aud: "a",
  iat: 1,
  exp: 2,
  jti: "j".repeat(22),
  act: {
    owner: `u_${"a".repeat(26)}`,
    actor: "alice",
    lifecycleUid: "a".repeat(26),
    credentialId: `r_${"a".repeat(26)}`,
    name: "alice",
  },
};

describe("by its form", () => {
  test.each([
    ["a seed", newKey("user").seedText()],
    ["a seed", newKey("account").seedText()],
    ["a private key", generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }).toString()],
    ["a private JWK", jwk],
    ["a signed token", signBearer(claims, bearerSigner(jwk))],
  ])("%s is found in a line of a log", (kind, secret) => {
    expect(kinds(`{"level":"info","msg":"begin ${secret} end"}`)).toContain(kind);
  });

  test("a user JWT of the broker, a public key and ordinary lines are none", () => {
    const account = newKey("account");
    const jwt = signedJwt({ sub: newKey("user").publicKey, iat: 1, nats: { type: "user" } }, account);
    const { d: _, ...publicJwk } = JSON.parse(jwk) as Record<string, string>;
    expect(kinds(`${jwt} ${account.publicKey} ${JSON.stringify(publicJwk)}\nsent to #general at 7\n`)).toEqual([]);
  });
});

describe("by its value", () => {
  const secret = "q".repeat(43);

  test("a text that is known as a secret is found, and nothing that only contains it in part", () => {
    const known = new Set([digestOf(secret)]);
    expect(kinds(`capability ${secret} leaked`, known)).toEqual(["a secret of the state folder"]);
    expect(kinds(`"${secret}"`, known)).toEqual(["a secret of the state folder"]);
    expect(kinds(secret.slice(1), known)).toEqual([]);
  });

  test("of a run: each output is looked through, and a finding does not repeat the secret", () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-leak-"));
    afterAll(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, `1${KNOWN}`), `${digestOf(secret)}\n`);
    writeFileSync(join(folder, "1-auth.txt"), `oh ${secret}\n`);
    writeFileSync(join(folder, "2-cli.txt"), "all well\n");
    const found = findLeaks(folder);
    expect(found).toMatchObject({ files: 2, known: 1, leaks: [{ where: "1-auth.txt" }] });
    expect(JSON.stringify(found)).not.toContain(secret);
  });
});

test("a run in which a process prints a seed fails, with all its tests passing", () => {
  const folder = mkdtempSync(join(tmpdir(), "cotal-run-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const root = join(import.meta.dirname, "..", "..");
  const printed = `import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
test("prints", () => appendFileSync(join(process.env["${PRINTED_FOLDER}"] ?? "", "x.txt"), "${newKey("user").seedText()}"));
`;
  writeFileSync(join(folder, "leak.test.ts"), printed);
  const run = (): string => {
    try {
      const script = join(root, "scripts", "test.ts");
      const args = [script, "--root", folder, "--config", join(folder, "none.config.ts")];
      writeFileSync(join(folder, "none.config.ts"), "export default {};\n");
      return execFileSync(process.execPath, args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    } catch (error) {
      return String(Reflect.get(Object(error), "stdout"));
    }
  };
  const out = run();
  expect(out).toContain("a secret was printed: a seed, in the output x.txt");
  expect(out.trim().split("\n").at(-1)).toBe("1 passed, 1 failed");
});
