/**
 * New keys of a space, with an overlap: what signs for its accounts, what seals the callout, what signs bearers.
 *
 * ```
 * rotate: next keys drawn ─▶ accounts accept them too ─▶ the daemons' files hold them ─▶ (daemons restarted)
 * finish: accounts accept the former ones no more; the callout's and the bearers' next ones are put in use
 * ```
 *
 * Invariants
 * 1. An account accepts a key before anybody signs with it, and until `finish` every key that it accepted.
 * 2. A run that dies is run again: a drawn key is kept in `….next` until the daemon's file holds it.
 * 3. The broker seals for one key of the callout, and a bearer names one: each is put in use only by `finish`, when
 *    every auth service knows it. The former curve key is known until the account names the next one, the former
 *    bearer key, its public half, until the last bearer of it has ended.
 */
import { existsSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { AuthFile, former as formerOf, next } from "../../shared/trust/auth-folder.ts";
import { MAX_BEARER_SECONDS, formerBearer, newBearerJwk } from "../../shared/trust/bearer.ts";
import { DeliveryFile } from "../../shared/trust/delivery-folder.ts";
import {
  ProvisionerFile,
  createPrivate,
  keptKey,
  readKept,
  trustPaths,
  writePrivate,
} from "../../shared/trust/folder.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
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

/** What is put in use by `finish`: how it is drawn, and what is kept of the one before. */
const SECRETS = [
  { file: AuthFile.Curve, draw: () => newCurveKey().seedText(), kept: (text: string) => text },
  {
    file: AuthFile.Bearer,
    draw: newBearerJwk,
    kept: (text: string, nowSeconds: number) => formerBearer(text, nowSeconds + MAX_BEARER_SECONDS),
  },
] as const;

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
  if (hasAuthTrust(state, space)) {
    for (const { file, draw } of SECRETS) createPrivate(next(join(trustPaths(state).auth(space), file)), draw);
  }
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

/** `keys` signing keys are accepted no more, and of `switched` others the next one is in use. */
export type Finished = { readonly keys: number; readonly switched: number };

export async function finishRotation(
  state: string,
  space: string,
  nowSeconds: number,
  push: () => Promise<void>,
): Promise<Finished> {
  const keys = former(state, space).length;
  rmSync(formerPath(state, space), { force: true });
  const own = (file: string): string => join(trustPaths(state).auth(space), file);
  const coming = SECRETS.filter(({ file }) => existsSync(next(own(file))));
  for (const { file, kept } of coming) {
    writePrivate(formerOf(own(file)), kept(readFileSync(own(file), "utf8").trim(), nowSeconds));
    renameSync(next(own(file)), own(file));
  }
  await push();
  // From now on the broker seals for the one in use.
  rmSync(formerOf(own(AuthFile.Curve)), { force: true });
  return { keys, switched: coming.length };
}
