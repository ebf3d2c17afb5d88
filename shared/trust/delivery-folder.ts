/**
 * Files of the delivery service for one space, in `<state>/spaces/<s>/delivery/`: written by the trust
 * program, read by the delivery service and by nobody else.
 */
import { z } from "zod";
import { AuthMode } from "../protocol/chat/space-settings.ts";

export const DeliveryFile = {
  /** Its own signing key of front, so that it can be withdrawn alone. */
  FrontSigner: "front-signer.nk",
  /** The same of the store, where posts are read and copies written. */
  StoreSigner: "store-signer.nk",
  OwnerSecret: "owner.secret",
  Uid: "lifecycle.uid",
  /** Its user of the system account: a credential and no key, renewed by the trust program. */
  Evictor: "evictor.creds",
  /** The user of the system account that sees subscriptions, for the membership feed. */
  Observer: "observer.creds",
  /** What it serves; written last, so a folder that has it is whole. */
  Space: "space.json",
} as const;

export const DeliverySpaceFile = z.strictObject({
  v: z.literal(1),
  space: z.string(),
  mode: AuthMode.exclude(["open"]),
  /** Public identity keys of the three accounts. */
  front: z.string(),
  store: z.string(),
  auth: z.string(),
});
export type DeliverySpaceFile = z.infer<typeof DeliverySpaceFile>;
