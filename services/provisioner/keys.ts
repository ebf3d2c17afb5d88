/**
 * The provisioner's own files for one space (`shared/trust/folder.ts` says what they are).
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ProvisionerFile } from "../../shared/trust/folder.ts";
import { IssuedList } from "../../shared/trust/issued.ts";
import { type SigningKey, keyFromSeed } from "../../shared/trust/keys.ts";
import { type OwnFolder, lawfulUid, ownFolder, secret, wholeFolders } from "../../shared/trust/own-folder.ts";
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

const WHO = { daemon: "provisioner", setting: "COTAL_PROVISIONER_KEYS" };

const folderOf = (pattern: string, space: string): OwnFolder => ownFolder(pattern, space, WHO);

/** Reads the files of one space. Throws `failed-precondition` that names the file that is wrong. */
export function readKeys(pattern: string, space: string): ProvisionerKeys {
  const { read: own } = folderOf(pattern, space);
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
  const { path, read } = folderOf(pattern, space);
  if (!existsSync(join(path, ProvisionerFile.Issued))) return [];
  return read(ProvisionerFile.Issued, (content) => IssuedList.parse(JSON.parse(content)));
}

/** The spaces that have whole files now, for `COTAL_SPACES=*`. */
export const spacesWithKeys = (pattern: string): string[] => wholeFolders(pattern, ProvisionerFile.Space);
