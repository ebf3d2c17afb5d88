/**
 * Files of the auth service for one space, in `<state>/spaces/<s>/auth/`: written by the trust program,
 * read by the auth service and by nobody else.
 */
import { z } from "zod";

export const AuthFile = {
  /** Signing key of the auth account: the service's own users there, responses, the sentinel. */
  AuthSigner: "auth-signer.nk",
  /** Its own signing keys of front and store, apart from the provisioner's, so each can be withdrawn alone. */
  FrontSigner: "front-signer.nk",
  StoreSigner: "store-signer.nk",
  /** The user that the auth account names: only it is asked. */
  CalloutUser: "callout-user.nk",
  /** Requests and answers are sealed for this curve key. */
  Curve: "curve.nk",
  /** Ed25519 key of the bearers, a private JWK. */
  Bearer: "bearer.jwk",
  OwnerSecret: "owner.secret",
  Uid: "lifecycle.uid",
  LedgerUid: "ledger.uid",
  /** Who the one person of a development issuer is: a drawn name, no key. */
  DevPerson: "dev-person",
  /** What the trust program minted, to be entered into the ledger (`issued.ts`). */
  Issued: "issued.json",
  /** What it serves; written last, so a folder that has it is whole. */
  Space: "space.json",
} as const;

/** Beside a file while keys are rotated: what follows it, */
export const next = (file: string): string => `${file}.next`;
/** and what it followed. */
export const former = (file: string): string => `${file}.former`;

export const AuthSpaceFile = z.strictObject({
  v: z.literal(1),
  space: z.string(),
  /** Public identity keys of the three accounts. */
  auth: z.string(),
  front: z.string(),
  store: z.string(),
  /** `iss` of this space's bearers. */
  issuer: z.string(),
});
export type AuthSpaceFile = z.infer<typeof AuthSpaceFile>;

/** `iss` and `aud` of a space's bearers. */
export const bearerIssuer = (space: string, authAccount: string): string => `cotal:${space}:${authAccount}`;
export const bearerAudience = (space: string): string => `cotal:${space}`;
