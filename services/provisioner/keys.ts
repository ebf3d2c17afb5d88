/**
 * The provisioner's own files for one space (`shared/trust/folder.ts` says what they are).
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only.
 */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { LIFECYCLE_UID, SPACE_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { ProvisionerFile } from "../../shared/trust/folder.ts";
import { IssuedList } from "../../shared/trust/issued.ts";
import { type SigningKey, keyFromSeed } from "../../shared/trust/keys.ts";
import { SpaceFile } from "../../shared/trust/space-file.ts";

export type ProvisionerKeys = {
  readonly file: SpaceFile;
  readonly frontSigner: SigningKey;
  readonly storeSigner: SigningKey;
  readonly ownerSecret: Uint8Array;
  readonly uid: string;
  readonly ledgerUid: string;
  readonly issued: IssuedList;
};

const PLACEHOLDER = "{space}";

/** Reads the files of one space. Throws `failed-precondition` that names the file that is wrong. */
export function readKeys(pattern: string, space: string): ProvisionerKeys {
  const folder = pattern.replace(PLACEHOLDER, space);
  const own = <T>(name: string, parse: (content: string) => T): T => whole(folder, name, parse);
  return {
    file: own(ProvisionerFile.Space, (content) => SpaceFile.parse(JSON.parse(content))),
    frontSigner: own(ProvisionerFile.FrontSigner, keyFromSeed),
    storeSigner: own(ProvisionerFile.StoreSigner, keyFromSeed),
    ownerSecret: own(ProvisionerFile.OwnerSecret, secret),
    uid: own(ProvisionerFile.Uid, lawfulUid),
    ledgerUid: own(ProvisionerFile.LedgerUid, lawfulUid),
    issued: readIssued(pattern, space),
  };
}

/** What the trust program has issued by now; it adds to the list while the space is served. */
export function readIssued(pattern: string, space: string): IssuedList {
  const folder = pattern.replace(PLACEHOLDER, space);
  if (!existsSync(join(folder, ProvisionerFile.Issued))) return [];
  return whole(folder, ProvisionerFile.Issued, (content) => IssuedList.parse(JSON.parse(content)));
}

function whole<T>(folder: string, name: string, parse: (content: string) => T): T {
  const content = readFile(folder, name);
  try {
    return parse(content);
  } catch {
    // Without the cause: it may quote the file.
    throw broken(join(folder, name), "does not hold what it should");
  }
}

function lawfulUid(content: string): string {
  if (!LIFECYCLE_UID.test(content)) throw new TypeError("malformed");
  return content;
}

/** 32 bytes as hex. Anything shorter would name every owner by a key that can be guessed. */
function secret(content: string): Buffer {
  if (!/^[0-9a-f]{64}$/.test(content)) throw new TypeError("malformed");
  return Buffer.from(content, "hex");
}

/** The spaces that have whole files now, for `COTAL_SPACES=*`. */
export function spacesWithKeys(pattern: string): string[] {
  const [lead = "", ...tail] = pattern.split(PLACEHOLDER);
  if (tail.length === 0) return [];
  const parent = lead.endsWith("/") ? lead : dirname(lead);
  let names: string[];
  try {
    names = readdirSync(parent);
  } catch {
    // The folder appears with the first space.
    return [];
  }
  return names.filter(
    (name) => SPACE_TOKEN.test(name) && existsSync(join(pattern.replace(PLACEHOLDER, name), ProvisionerFile.Space)),
  );
}

function readFile(folder: string, name: string): string {
  try {
    return readFileSync(join(folder, name), "utf8").trim();
  } catch {
    throw broken(join(folder, name), "can't be read");
  }
}

function broken(path: string, why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the provisioner's file ${path} ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "run cotal up or cotal space add, which write these files; check COTAL_PROVISIONER_KEYS",
  });
}
