/**
 * The provisioner's own files for one space (`shared/trust/folder.ts` says what they are).
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only.
 */
import { ProvisionerFile } from "../../shared/trust/folder.ts";
import { type IssuedList, issuedIn } from "../../shared/trust/issued.ts";
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
  };
}

/** What the trust program has issued by now. */
export const readIssued = (pattern: string, space: string): IssuedList =>
  issuedIn(folderOf(pattern, space), ProvisionerFile.Issued);

/** The spaces that have whole files now, for `COTAL_SPACES=*`. */
export const spacesWithKeys = (pattern: string): string[] => wholeFolders(pattern, ProvisionerFile.Space);
