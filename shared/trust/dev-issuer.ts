/**
 * What the development issuer of a space consists of: its key and its one person, two files of the auth
 * service's folder. Drawn once; where that folder is mounted read-only, by whoever made it.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { join } from "node:path";
import { encodeToken } from "../protocol/base/principals.ts";
import { AuthFile } from "./auth-folder.ts";
import { createPrivate } from "./folder.ts";

/** The private JWK and the subject, as text. */
export function keptDevIssuer(folder: string): { readonly jwk: string; readonly subject: string } {
  return {
    jwk: createPrivate(join(folder, "dev-issuer.jwk"), newJwk),
    subject: createPrivate(join(folder, AuthFile.DevPerson), () => encodeToken(randomBytes(17), 26)),
  };
}

function newJwk(): string {
  return JSON.stringify(generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }));
}
