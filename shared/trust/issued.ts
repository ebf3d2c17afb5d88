/**
 * `issued.json`: credentials that the trust program minted before the space had a ledger. The
 * provisioner enters them at each start, before it is ready (§13.1: no unledgered credential).
 */
import { z } from "zod";

export const IssuedList = z.array(
  z.strictObject({
    owner: z.string(),
    actor: z.string(),
    uid: z.string(),
    /** The user's public nkey. */
    credentialId: z.string(),
    /** Unix seconds. */
    expires: z.number(),
  }),
);
export type IssuedList = z.infer<typeof IssuedList>;
