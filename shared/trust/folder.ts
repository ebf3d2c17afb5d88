/**
 * Trust material on disk, split by who needs it (architecture §4).
 *
 * ```
 * <state>/trust/               operator and system-account keys; only the trust program reads it
 * <state>/spaces/<s>/trust/    identity keys of the space's accounts, revocations; trust program
 * <state>/spaces/<s>/provisioner/  signing keys, credentials, owner secret; the provisioner
 * <state>/spaces/<s>/auth/         keys of the auth service, where people sign in; the auth service
 * <state>/spaces/<s>/delivery/     keys of the delivery service, its system-account credential; that service
 * <state>/spaces/<s>/operator/     the operator's own credential; the CLI
 * <state>/spaces/<s>/agents/       credentials that the CLI keeps for `--as`
 * ```
 *
 * Invariants: every file is 0600 in a 0700 folder; a write is to a temporary file, then a rename,
 * so a crash leaves the old file or the new one (`staged.ts`); a secret is created once and never overwritten
 * but by a rotation.
 */
import { randomBytes } from "node:crypto";
import { chmodSync, existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { drawLifecycleUid } from "../protocol/base/principals.ts";
import { type KeyKind, type SigningKey, keyFromSeed, newKey } from "./keys.ts";
import { lawfulUid, secret } from "./own-folder.ts";
import { orRemoved, stage } from "./staged.ts";

/** Paths of a state folder. */
export function trustPaths(state: string) {
  const space = (name: string) => join(state, "spaces", name);
  return {
    root: join(state, "trust"),
    operatorKey: join(state, "trust", "operator.nk"),
    operatorJwt: join(state, "trust", "operator.jwt"),
    systemKey: join(state, "trust", "system.nk"),
    systemSigner: join(state, "trust", "system-signer.nk"),
    systemJwt: join(state, "trust", "system.jwt"),
    spaces: join(state, "spaces"),
    space,
    spaceTrust: (name: string) => join(space(name), "trust"),
    provisioner: (name: string) => join(space(name), "provisioner"),
    auth: (name: string) => join(space(name), "auth"),
    delivery: (name: string) => join(space(name), "delivery"),
    /** No secret: what everybody presents beside a bearer. */
    sentinel: (name: string) => join(space(name), "sentinel.jwt"),
    operatorCreds: (name: string) => join(space(name), "operator", "operator.creds"),
    agents: (name: string) => join(space(name), "agents"),
    agentCreds: (name: string, actor: string) => join(space(name), "agents", `${actor}.creds`),
    /** Held by whoever changes the trust; by an initialiser around that; by a command that writes what it keeps. */
    lock: join(state, "trust.lock"),
    initialiserLock: join(state, "initialise.lock"),
    commandLock: (name: string) => join(space(name), "cli.lock"),
  } as const;
}

/** Files inside the provisioner's folder. */
export const ProvisionerFile = {
  FrontSigner: "front-signer.nk",
  StoreSigner: "store-signer.nk",
  OwnerSecret: "owner.secret",
  /** Lifecycle UIDs of the provisioner itself and of its ledger. */
  Uid: "lifecycle.uid",
  LedgerUid: "ledger.uid",
  /** What it signs for (`space-file.ts`); written last, so a folder that has it is whole. */
  Space: "space.json",
  /** What the trust program minted, to be entered into the ledger. */
  Issued: "issued.json",
} as const;

/** Writes a 0600 file whole or not at all, replacing an older one. */
export function writePrivate(path: string, text: string): void {
  tightFolder(path);
  replace(path, text);
}

/** The same in a folder that may be somebody else's, such as `/run`: one that is there keeps its mode. */
export function writePrivateBeside(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  replace(path, text);
}

function replace(path: string, text: string): void {
  const temporary = stage(path, text);
  orRemoved(temporary, () => renameSync(temporary, path));
}

/** Creates a 0600 file; the first writer wins, and every caller reads the winner's text. */
export function createPrivate(path: string, make: () => string): string {
  if (!existsSync(path)) {
    tightFolder(path);
    const temporary = stage(path, make());
    try {
      linkSync(temporary, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    } finally {
      rmSync(temporary, { force: true });
    }
  }
  return readFileSync(path, "utf8").trim();
}

function tightFolder(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  chmodSync(dirname(path), 0o700);
}

/**
 * What a file holds: made at first use, then always the same. Throws `failed-precondition` for one that holds
 * anything else, whoever wrote it: half of a key must never be passed on as if it were one.
 */
export function kept<T>(path: string, make: () => string, parse: (text: string) => T): T {
  return parsed(path, createPrivate(path, make), parse);
}

/** A text that other files have decided. Throws `failed-precondition` for a file that says something else. */
export function keptAs(path: string, text: string): void {
  kept(
    path,
    () => text,
    (held) => {
      if (held !== text) throw new TypeError("of another trust");
    },
  );
}

const LEAD: Readonly<Record<KeyKind, string>> = { operator: "O", account: "A", user: "U" };

/** A key of that kind. */
export function keptKey(path: string, kind: KeyKind): SigningKey {
  return kept(
    path,
    () => newKey(kind).seedText(),
    (text) => {
      const key = keyFromSeed(text);
      if (!key.publicKey.startsWith(LEAD[kind])) throw new TypeError("of another kind");
      return key;
    },
  );
}

/** A lifecycle UID, drawn at first use. */
export function keptUid(path: string): string {
  return kept(path, () => drawLifecycleUid(randomBytes), lawfulUid);
}

/** A file of this folder, parsed. Throws `failed-precondition` for one that is wrong. */
export function readKept<T>(path: string, parse: (text: string) => T): T {
  return parsed(path, readFileSync(path, "utf8"), parse);
}

/** A wrong file is named and never quoted, by its cause neither. */
function parsed<T>(path: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text);
  } catch {
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not hold what it should`, {
      outcome: Outcome.NotExecuted,
      next: "put back that file from a copy of its folder (cotal backup holds no keys); without one, cotal restore makes the space on a new state folder",
    });
  }
}

/** 32 random bytes kept in a file as hex. */
export function keptSecret(path: string): Buffer {
  return kept(path, () => randomBytes(32).toString("hex"), secret);
}
