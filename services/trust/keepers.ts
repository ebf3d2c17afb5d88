/**
 * What a backup and a restore need of the trust of a space: a credential for one run, and the owner secret.
 *
 * ```
 * restore: restoring.json "writing" ─▶ keys, accounts ─▶ (the space is filled) ─▶ "proved" ─▶ published
 * ```
 *
 * Invariants
 * 1. A restore makes the space's keys anew: no credential of before is one of these accounts.
 * 2. While a restore is "writing", nobody publishes the space: no daemon sees half of it.
 * 3. The owner secret comes back, and who the person of a development issuer is, or everybody would be somebody
 *    else: neither signs anything.
 */
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Account } from "../../shared/grants/row.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { formatCreds } from "../../shared/trust/creds.ts";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { DeliveryFile } from "../../shared/trust/delivery-folder.ts";
import {
  ProvisionerFile,
  createPrivate,
  keptUid,
  readKept,
  trustPaths,
  writePrivate,
} from "../../shared/trust/folder.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { secret } from "../../shared/trust/own-folder.ts";
import { systemOwner } from "../../shared/trust/owner.ts";
import type { SpaceFile } from "../../shared/trust/space-file.ts";
import { type SpaceTrust, listIssued } from "./space-trust.ts";

/** In a backup folder (`shared/backup/format.ts` lists them with their digests). */
const OWNER_SECRET = "owner.secret";
const DEV_PERSON = "dev-person";

const Restoring = z.strictObject({
  v: z.literal(1),
  /** Digest of the backup's manifest. */
  digest: z.string(),
  phase: z.enum(["writing", "proved"]),
  /** Users that have filled it, in this run or one that died: refused from the moment it is proved. */
  users: z.array(z.string()),
});
type Restoring = z.infer<typeof Restoring>;

const recordPath = (state: string, space: string): string =>
  join(trustPaths(state).spaceTrust(space), "restoring.json");

/** The restore that made this space, or is making it. */
function restoring(state: string, space: string): Restoring | undefined {
  const path = recordPath(state, space);
  return existsSync(path) ? readKept(path, (text) => Restoring.parse(JSON.parse(text))) : undefined;
}

/** Refuses to publish a space that a restore has not filled. */
export function assertWhole(state: string, space: string): void {
  if (restoring(state, space)?.phase !== "writing") return;
  throw new CotalError(ErrorCode.FailedPrecondition, `a restore of ${space} was begun here and has not ended`, {
    outcome: Outcome.NotExecuted,
    next: "run cotal restore FOLDER again; it begins from nothing",
  });
}

/** Has any daemon been given this space? */
function isPublished(state: string, space: string): boolean {
  const paths = trustPaths(state);
  return [
    join(paths.auth(space), AuthFile.Space),
    join(paths.delivery(space), DeliveryFile.Space),
    join(paths.provisioner(space), ProvisionerFile.Space),
  ].some((path) => existsSync(path));
}

export type Begun = { readonly phase: Restoring["phase"] };

/** The first step, before any key is made. Safe to run again. */
export function beginRestore(state: string, space: string, folder: string, digest: string): Begun {
  const before = restoring(state, space);
  const isAll = existsSync(join(trustPaths(state).provisioner(space), ProvisionerFile.Space));
  if (before?.phase === "proved" && before.digest === digest && !isAll) return { phase: "proved" };
  if (isPublished(state, space)) {
    throw new CotalError(ErrorCode.AlreadyExists, `there is a space ${space} on ${state} already`, {
      outcome: Outcome.NotExecuted,
      next: "a restore makes a space anew: name a new state folder with --state DIR",
    });
  }
  const given = readKept(join(folder, OWNER_SECRET), (text) => secret(text.trim())).toString("hex");
  const kept = createPrivate(join(trustPaths(state).provisioner(space), ProvisionerFile.OwnerSecret), () => given);
  if (kept !== given) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${state} holds the keys of another ${space}`, {
      outcome: Outcome.NotExecuted,
      next: "name a new state folder with --state DIR",
    });
  }
  const person = join(folder, DEV_PERSON);
  if (existsSync(person)) {
    createPrivate(join(trustPaths(state).auth(space), AuthFile.DevPerson), () => readFileSync(person, "utf8").trim());
  }
  record(state, space, { v: 1, digest, phase: "writing", users: before?.users ?? [] });
  return { phase: "writing" };
}

/** It is filled and proved. Returns the users that have no more to do there. */
export function endRestore(state: string, space: string): readonly string[] {
  const now = restoring(state, space);
  if (now === undefined) {
    throw new CotalError(ErrorCode.FailedPrecondition, `no restore of ${space} was begun on ${state}`, {
      outcome: Outcome.NotExecuted,
      next: "run cotal restore FOLDER",
    });
  }
  record(state, space, { ...now, phase: "proved" });
  return now.users;
}

function record(state: string, space: string, row: Restoring): void {
  writePrivate(recordPath(state, space), JSON.stringify(row));
}

/** What makes everybody who he is, into the folder of a backup. */
export function handOver(state: string, { space, ownerSecret }: SpaceTrust, folder: string): void {
  writePrivate(join(folder, OWNER_SECRET), ownerSecret.toString("hex"));
  const person = join(trustPaths(state).auth(space), AuthFile.DevPerson);
  if (existsSync(person)) writePrivate(join(folder, DEV_PERSON), readFileSync(person, "utf8"));
}

/** A credential for one run, in a file that whoever runs it removes. */
export async function keeperCredential(
  state: string,
  trust: SpaceTrust,
  auth: SpaceFile["auth"],
  keeper: "backup" | "restore",
  nowSeconds: number,
): Promise<{ readonly creds: string; readonly owner: string }> {
  const { space, keys, ownerSecret } = trust;
  const paths = trustPaths(state);
  const uid = keptUid(join(paths.spaceTrust(space), `${keeper}.uid`));
  const owner = systemOwner(ownerSecret, space);
  const holder = { principal: principal(owner, keeper), uid };
  const user = newKey("user");
  const expires = nowSeconds + Life.Errand;
  const { jwt } = await mintUser({
    profile: keeper === "backup" ? "backup-reader" : "space-restorer",
    scope: { space, holder, inboxNonce: drawNonce(randomBytes) },
    account: Account.Store,
    accountKey: keys.store.publicKey,
    signer: keys.storeSigner,
    userKey: user.publicKey,
    expires,
    limits: { subs: 100, payload: -1 },
  });
  if (keeper === "backup") {
    const entry = { ...holder.principal, uid, credentialId: user.publicKey, expires, reads: false };
    listIssued(state, space, auth, nowSeconds, entry);
  } else {
    const now = restoring(state, space);
    if (now !== undefined) record(state, space, { ...now, users: [...now.users, user.publicKey] });
  }
  const creds = join(paths.space(space), "operator", `${keeper}.creds`);
  writePrivate(creds, formatCreds(jwt, user));
  return { creds, owner };
}
