/**
 * The delivery service's own files for one space (`shared/trust/delivery-folder.ts` says what they are).
 *
 * Read again at each start of a space, never written: a mounted secret may be read-only.
 */
import { join } from "node:path";
import type { Authenticator } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { type Credential, parseCreds, readCredsFile } from "../../shared/trust/creds.ts";
import { DeliveryFile, DeliverySpaceFile } from "../../shared/trust/delivery-folder.ts";
import { type SigningKey, keyFromSeed } from "../../shared/trust/keys.ts";
import { lawfulUid, ownFolder, secret, wholeFolders } from "../../shared/trust/own-folder.ts";

export type DeliveryKeys = {
  readonly file: DeliverySpaceFile;
  readonly frontSigner: SigningKey;
  readonly storeSigner: SigningKey;
  readonly ownerSecret: Uint8Array;
  readonly uid: string;
  readonly evictor: SystemUser;
  /** Read when the membership feed needs it: without it everything else is served. */
  readonly readObserver: () => SystemUser;
};

/** A user of the system account, whose credential is a file that the trust program renews. */
export type SystemUser = {
  readonly authenticator: Authenticator;
  readonly inboxPrefix: string;
  /** When the one in the file ends, in Unix seconds. Throws for a file that is wrong. */
  readonly expires: () => number;
  /** Is the one in the file the one that was presented last? Throws for a file that is wrong. */
  readonly isPresented: () => boolean;
};

const WHO = { daemon: "delivery service", setting: "COTAL_DELIVERY_KEYS" };

/** Reads the files of one space. Throws `failed-precondition` that names the file that is wrong. */
export function readDeliveryKeys(pattern: string, space: string): DeliveryKeys {
  const { path, read } = ownFolder(pattern, space, WHO);
  return {
    file: read(DeliveryFile.Space, (content) => ofSpace(DeliverySpaceFile.parse(JSON.parse(content)), space)),
    frontSigner: read(DeliveryFile.FrontSigner, keyFromSeed),
    storeSigner: read(DeliveryFile.StoreSigner, keyFromSeed),
    ownerSecret: read(DeliveryFile.OwnerSecret, secret),
    uid: read(DeliveryFile.Uid, lawfulUid),
    evictor: systemUserOf(join(path, DeliveryFile.Evictor), read(DeliveryFile.Evictor, parseCreds)),
    readObserver: () => systemUserOf(join(path, DeliveryFile.Observer), read(DeliveryFile.Observer, parseCreds)),
  };
}

/**
 * A renewed file is of the same lifecycle and nonce, so the connection takes it up at its next dial. One that was made
 * anew is of another inbox: it fails the dial, and the space is opened again with it.
 */
function systemUserOf(path: string, { view }: Credential): SystemUser {
  const inbox = inboxPrefix(view.uid, view.inboxNonce);
  let dialed: Credential | undefined;
  const held = (): Credential => {
    const credential = readCredsFile(path);
    if (inboxPrefix(credential.view.uid, credential.view.inboxNonce) === inbox) return credential;
    throw new TypeError("of another lifecycle or inbox");
  };
  return {
    inboxPrefix: inbox,
    authenticator: {
      // nats.js asks for the JWT and then for the signature of one dial: both come from one reading.
      jwt: () => (dialed = held()).jwt,
      sign: (nonce) => (dialed ?? held()).sign(nonce),
    },
    expires: () => held().view.expires ?? Number.POSITIVE_INFINITY,
    isPresented: () => held().jwt === dialed?.jwt,
  };
}

/** Keys of one space must never answer for another. */
function ofSpace(file: DeliverySpaceFile, space: string): DeliverySpaceFile {
  if (file.space !== space) throw new TypeError("of another space");
  return file;
}

/** The spaces that have whole files now, for `COTAL_SPACES=*`. */
export const spacesWithDeliveryKeys = (pattern: string): string[] => wholeFolders(pattern, DeliveryFile.Space);
