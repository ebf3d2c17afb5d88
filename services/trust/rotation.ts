/**
 * New signing keys for the accounts of a space, with an overlap.
 *
 * ```
 * rotate: next keys drawn ─▶ accounts accept them too ─▶ the daemons' files hold them ─▶ (daemons restarted)
 * finish: accounts accept the former ones no more
 * ```
 *
 * Invariants
 * 1. An account accepts a key before anybody signs with it, and until `finish` every key that it accepted.
 * 2. A run that dies is run again: a drawn key is kept in `….next` until the daemon's file holds it.
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { DeliveryFile } from "../../shared/trust/delivery-folder.ts";
import { ProvisionerFile, keptKey, readKept, trustPaths, writePrivate } from "../../shared/trust/folder.ts";
import { hasAuthTrust } from "./auth-trust.ts";

const Former = z.array(
  z.strictObject({
    account: z.enum(["front", "store", "auth"]),
    publicKey: z.string(),
    /** Unix seconds since which nobody signs with it. */
    since: z.number(),
  }),
);
type Former = z.infer<typeof Former>;
type Signer = { readonly account: Former[number]["account"]; readonly path: string };

const formerPath = (state: string, space: string): string =>
  join(trustPaths(state).spaceTrust(space), "former-signers.json");

function signersOf(state: string, space: string): Signer[] {
  const paths = trustPaths(state);
  const [provisioner, delivery, auth] = [paths.provisioner(space), paths.delivery(space), paths.auth(space)];
  return [
    { account: "front", path: join(provisioner, ProvisionerFile.FrontSigner) },
    { account: "store", path: join(provisioner, ProvisionerFile.StoreSigner) },
    { account: "front", path: join(delivery, DeliveryFile.FrontSigner) },
    { account: "store", path: join(delivery, DeliveryFile.StoreSigner) },
    ...(hasAuthTrust(state, space)
      ? [
          { account: "auth" as const, path: join(auth, AuthFile.AuthSigner) },
          { account: "front" as const, path: join(auth, AuthFile.FrontSigner) },
          { account: "store" as const, path: join(auth, AuthFile.StoreSigner) },
        ]
      : []),
  ];
}

const next = (path: string): string => `${path}.next`;

function former(state: string, space: string): Former {
  const path = formerPath(state, space);
  return existsSync(path) ? readKept(path, (text) => Former.parse(JSON.parse(text))) : [];
}

/** Public keys that an account accepts beside those in the daemons' files: of before, and those that come. */
export function rotatingSigners(state: string, space: string) {
  const coming = signersOf(state, space).flatMap(({ account, path }) =>
    existsSync(next(path)) ? [{ account, publicKey: keptKey(next(path), "account").publicKey }] : [],
  );
  const all = [...former(state, space), ...coming];
  const of = (account: Signer["account"]): string[] =>
    all.filter((one) => one.account === account).map(({ publicKey }) => publicKey);
  return { front: of("front"), store: of("store"), auth: of("auth") };
}

/** Draws, has the accounts accept, and only then puts the new keys where the daemons read them. */
export async function rotateSigners(
  state: string,
  space: string,
  nowSeconds: number,
  push: () => Promise<void>,
): Promise<number> {
  const signers = signersOf(state, space);
  for (const { path } of signers) keptKey(next(path), "account");
  await push();
  for (const { account, path } of signers) {
    const { publicKey } = keptKey(path, "account");
    writePrivate(
      formerPath(state, space),
      JSON.stringify([...former(state, space), { account, publicKey, since: nowSeconds }]),
    );
    writePrivate(path, keptKey(next(path), "account").seedText());
    rmSync(next(path));
  }
  return signers.length;
}

/** Returns how many keys are accepted no more. */
export async function finishRotation(state: string, space: string, push: () => Promise<void>): Promise<number> {
  const count = former(state, space).length;
  rmSync(formerPath(state, space), { force: true });
  await push();
  return count;
}
