/**
 * What the development issuer of a space consists of: its key and its one person, two files of the auth
 * service's folder. Drawn once; where that folder is mounted read-only, by whoever made it.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { z } from "zod";
import { join } from "node:path";
import { encodeToken } from "../protocol/base/principals.ts";
import { AuthFile } from "./auth-folder.ts";
import { kept } from "./folder.ts";

const KEY = "dev-issuer.jwk";

/** What the auth service itself writes in its folder. */
export const DEV_ISSUER_FILES: ReadonlySet<string> = new Set([KEY, AuthFile.DevPerson]);

/** The private JWK and the subject, as text. */
export function keptDevIssuer(folder: string): { readonly jwk: DevJwk; readonly subject: string } {
  return {
    jwk: kept(join(folder, KEY), newJwk, (text) => DevJwk.parse(JSON.parse(text))),
    subject: kept(
      join(folder, AuthFile.DevPerson),
      () => encodeToken(randomBytes(17), 26),
      (text) => Subject.parse(text),
    ),
  };
}

const DevJwk = z.looseObject({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: z.string(), d: z.string() });
export type DevJwk = z.infer<typeof DevJwk>;
const Subject = z.string().regex(/^[a-z2-7]{26}$/);

function newJwk(): string {
  return JSON.stringify(generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }));
}
