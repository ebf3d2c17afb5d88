/**
 * `issued.json`: credentials that the trust program minted before the space had a ledger. Who writes the
 * ledger enters them before it serves (§13.1: no unledgered credential): the auth service where people sign
 * in, the provisioner elsewhere.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { OwnFolder } from "./own-folder.ts";

export const IssuedList = z.array(
  z.strictObject({
    owner: z.string(),
    actor: z.string(),
    uid: z.string(),
    /** The user's public nkey. */
    credentialId: z.string(),
    /** Unix seconds. */
    expires: z.number(),
    /** False for a daemon's own: nobody reads by it, so it gets no read list. */
    reads: z.boolean().optional(),
  }),
);
export type IssuedList = z.infer<typeof IssuedList>;

/** What is listed in a daemon's folder by now; the trust program adds to it while the space is served. */
export function issuedIn({ path, read }: OwnFolder, file: string): IssuedList {
  return existsSync(join(path, file)) ? read(file, (text) => IssuedList.parse(JSON.parse(text))) : [];
}
