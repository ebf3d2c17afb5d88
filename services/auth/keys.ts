/**
 * The auth service's own files for one space (`shared/trust/auth-folder.ts` says what they are).
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only.
 */
import { AuthFile, AuthSpaceFile, former, next } from "../../shared/trust/auth-folder.ts";
import { type IssuedList, issuedIn } from "../../shared/trust/issued.ts";
import { type BearerSigner, type KnownBearerKey, bearerSigner, formerBearerKey } from "../../shared/trust/bearer.ts";
import { type SigningKey, keyFromSeed } from "../../shared/trust/keys.ts";
import { lawfulUid, ownFolder, secret, wholeFolders } from "../../shared/trust/own-folder.ts";
import { type CurveKey, curveKeyFromSeed } from "../../shared/trust/xkey.ts";

export type AuthKeys = {
  readonly folder: string;
  readonly file: AuthSpaceFile;
  readonly authSigner: SigningKey;
  readonly frontSigner: SigningKey;
  readonly storeSigner: SigningKey;
  /** The user that the auth account names: only it is asked. */
  readonly calloutUser: SigningKey;
  /** The one that the account names first; while keys are rotated another beside it. */
  readonly curves: readonly CurveKey[];
  /** What the exchange signs with, */
  readonly bearer: BearerSigner;
  /** and what a bearer may be signed with: while keys are rotated the next or the former one too. */
  readonly bearerKeys: readonly [BearerSigner, ...KnownBearerKey[]];
  readonly ownerSecret: Uint8Array;
  readonly uid: string;
  readonly ledgerUid: string;
};

const WHO = { daemon: "auth service", setting: "COTAL_AUTH_KEYS" };

/** Reads the files of one space. Throws `failed-precondition` that names the file that is wrong. */
export function readAuthKeys(pattern: string, space: string): AuthKeys {
  const { path, read, readIf } = ownFolder(pattern, space, WHO);
  const bearer = read(AuthFile.Bearer, bearerSigner);
  return {
    folder: path,
    file: read(AuthFile.Space, (content) => ofSpace(AuthSpaceFile.parse(JSON.parse(content)), space)),
    authSigner: read(AuthFile.AuthSigner, keyFromSeed),
    frontSigner: read(AuthFile.FrontSigner, keyFromSeed),
    storeSigner: read(AuthFile.StoreSigner, keyFromSeed),
    calloutUser: read(AuthFile.CalloutUser, keyFromSeed),
    curves: [
      read(AuthFile.Curve, curveKeyFromSeed),
      ...[next, former].flatMap((of) => readIf(of(AuthFile.Curve), curveKeyFromSeed)),
    ],
    bearer,
    bearerKeys: [
      bearer,
      ...readIf(next(AuthFile.Bearer), bearerSigner),
      ...readIf(former(AuthFile.Bearer), formerBearerKey),
    ],
    ownerSecret: read(AuthFile.OwnerSecret, secret),
    uid: read(AuthFile.Uid, lawfulUid),
    ledgerUid: read(AuthFile.LedgerUid, lawfulUid),
  };
}

/** What the trust program has issued by now. */
export const readIssued = (pattern: string, space: string): IssuedList =>
  issuedIn(ownFolder(pattern, space, WHO), AuthFile.Issued);

/** Keys of one space must never answer for another. */
function ofSpace(file: AuthSpaceFile, space: string): AuthSpaceFile {
  if (file.space !== space) throw new TypeError("of another space");
  return file;
}

/** The spaces that have whole files now, for `COTAL_SPACES=*`. */
export const spacesWithAuthKeys = (pattern: string): string[] => wholeFolders(pattern, AuthFile.Space);
