/**
 * Did anything that the whole run printed hold a secret? Every process of the tests adds what it printed, and
 * the secrets of its state folder, to one folder (test/support/printed.ts); here both are compared.
 *
 * Two ways to find one: by its form (a seed, a private key, a signed token that is no user JWT of the broker),
 * and by its value, where a secret is an opaque text. A user JWT is no secret: without its seed it opens
 * nothing.
 *
 * Invariant: a finding names the file and the kind, and never repeats the secret.
 */
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

export const PRINTED_FOLDER = "COTAL_TEST_PRINTED";

/** Files of digests of known secrets, one in a line; all else is what was printed. */
export const KNOWN = ".secrets";

export type Leak = { readonly kind: string; readonly where: string };

const BY_FORM: readonly { readonly kind: string; readonly form: RegExp; readonly is?: (found: string) => boolean }[] = [
  { kind: "a seed", form: /\bS[UAOCNX][A-Z2-7]{56}\b/g },
  { kind: "a private key", form: /-----BEGIN [A-Z ]*PRIVATE KEY-----/g },
  { kind: "a private JWK", form: /"d"\s*:\s*"[A-Za-z0-9_-]{40,}"/g },
  {
    kind: "a signed token",
    form: /\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{40,}/g,
    is: isSecretToken,
  },
];

/** Of the broker's own JWTs the header names an algorithm of nkeys. */
function isSecretToken(token: string): boolean {
  try {
    const header: unknown = JSON.parse(Buffer.from(token.split(".")[0] ?? "", "base64url").toString());
    return !(typeof header === "object" && header !== null && Reflect.get(header, "alg") === "ed25519-nkey");
  } catch {
    return true;
  }
}

/** Words that an opaque secret could be one of. */
const WORD = /[A-Za-z0-9_~.+/=-]{20,}/g;

export const digestOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");

/** What of `known` (digests), and of the forms, stands in a text. */
export function leaksIn(text: string, known: ReadonlySet<string>, where: string): Leak[] {
  const formed = BY_FORM.filter(({ form, is = () => true }) => (text.match(form) ?? []).some(is));
  const leaks = formed.map(({ kind }) => ({ kind, where }));
  const opaque = known.size > 0 && (text.match(WORD) ?? []).some((word) => known.has(digestOf(word)));
  return opaque ? [...leaks, { kind: "a secret of the state folder", where }] : leaks;
}

/** Everything that was printed in a run, against everything that must not be. */
export function findLeaks(folder: string): { readonly leaks: Leak[]; readonly files: number; readonly known: number } {
  const names = readdirSync(folder);
  const known = new Set(
    names
      .filter((name) => name.endsWith(KNOWN))
      .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").filter(Boolean)),
  );
  const printed = names.filter((name) => !name.endsWith(KNOWN));
  const leaks = printed.flatMap((name) => leaksIn(readFileSync(join(folder, name), "utf8"), known, name));
  return { leaks, files: printed.length, known: known.size };
}
