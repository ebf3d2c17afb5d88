/**
 * Credential files: the standard NATS form of a user JWT and its seed.
 *
 * Invariant: the file is read again at each dial, so a renewed one is taken up without a restart;
 * its seed never leaves the authenticator that is made here.
 */
import { readFileSync } from "node:fs";
import { CotalError, ErrorCode, badRequest } from "../protocol/base/errors.ts";
import { type SigningKey, keyFromSeed } from "./keys.ts";
import { type CredentialView, readUserJwt } from "./jwt.ts";

const JWT_BLOCK = /-{3,}BEGIN NATS USER JWT-{3,}\s+(\S+)\s+-{3,}END NATS USER JWT-{3,}/;
const SEED_BLOCK = /-{3,}BEGIN USER NKEY SEED-{3,}\s+(\S+)\s+-{3,}END USER NKEY SEED-{3,}/;
const MAX_FILE = 64 * 1024;
const USE_A_MINTED_ONE = "use the file that cotal mint wrote";

/** Text of a credential file. */
export function formatCreds(jwt: string, key: SigningKey): string {
  return [
    "-----BEGIN NATS USER JWT-----",
    jwt,
    "------END NATS USER JWT------",
    "",
    "This file is a secret: whoever holds it acts as its principal.",
    "",
    "-----BEGIN USER NKEY SEED-----",
    key.seedText(),
    "------END USER NKEY SEED------",
    "",
  ].join("\n");
}

/** What a connection presents: a JWT, and signatures over the broker's nonce. */
export type Credential = {
  readonly view: CredentialView;
  readonly jwt: string;
  readonly sign: (nonce: Uint8Array) => Uint8Array;
};

/** Parses the text of a credential file; throws without repeating any of it. */
export function parseCreds(text: string): Credential {
  const jwt = JWT_BLOCK.exec(text)?.[1];
  const seed = SEED_BLOCK.exec(text)?.[1];
  if (jwt === undefined || seed === undefined) {
    throw badRequest("this is no credential file", USE_A_MINTED_ONE);
  }
  const key = keyFromSeed(seed);
  const view = readUserJwt(jwt);
  if (view.userKey !== key.publicKey) {
    throw badRequest("the file's JWT and seed do not belong together", USE_A_MINTED_ONE);
  }
  return { view, jwt, sign: key.sign };
}

/** Reads and parses a credential file. */
export function readCredsFile(path: string): Credential {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new CotalError(ErrorCode.NotFound, `the credential file ${path} can't be read`, {
      next: "name a file that cotal mint wrote, or use --as ACTOR where the operator's state is at hand",
      cause,
    });
  }
  if (text.length > MAX_FILE) throw badRequest(`${path} is too large to be a credential file`, USE_A_MINTED_ONE);
  try {
    return parseCreds(text);
  } catch (thrown) {
    // Which file, when several are at hand; never a word of what it holds.
    if (!(thrown instanceof CotalError)) throw thrown;
    throw badRequest(`${path}: ${thrown.message}`, thrown.next ?? USE_A_MINTED_ONE);
  }
}
