/**
 * Making and renewing a credential file: the key is drawn here, and only its public half leaves.
 *
 * Invariants
 * 1. The seed is on disk, in the state folder, before the provisioner is asked: a run that died in
 *    between is repeated with the same key, and that converges on the same lifecycle.
 * 2. A file that exists is never overwritten by another identity's, and no folder outside the state
 *    folder is touched but for the file itself.
 */
import { createHash } from "node:crypto";
import { existsSync, linkSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { ProvisionerCommand } from "../shared/grants/commands.ts";
import { MintAnswer, type MintArgs } from "../shared/protocol/endpoint/provisioner-shapes.ts";
import { formatCreds, parseCreds } from "../shared/trust/creds.ts";
import { keptKey, writePrivate } from "../shared/trust/folder.ts";
import type { CredentialView } from "../shared/trust/jwt.ts";
import { type SigningKey, keyFromSeed } from "../shared/trust/keys.ts";
import { agentsFolder, keeping, pendingFolder } from "./keeping.ts";
import type { Rail } from "./operator.ts";
import type { Target } from "./target.ts";

/** Owner label of credentials that `--as` mints: whoever holds this state folder. */
export const LOCAL_OWNER = "here";
/** What `mint` gives where no list is named. */
export const DEFAULT_CHANNELS: readonly string[] = ["general"];
/** `--as` is for a person at their own space: every channel. */
export const EVERY_CHANNEL: readonly string[] = [">"];

export type MintedFile = {
  readonly principal: string;
  readonly uid: string;
  readonly file: string;
  /** Unix seconds. */
  readonly expires: number;
};

type Request = Omit<MintArgs, "userKey">;

/** Mints into `file`, which must not exist yet. */
export async function mintInto(rail: Rail, target: Target, file: string, request: Request): Promise<MintedFile> {
  if (existsSync(file)) throw taken(file);
  if (!existsSync(dirname(file)) && !isKept(target, file)) throw noFolder(dirname(file));
  const pending = pendingKey(target, file);
  const key = keeping(target, () => keptKey(pending, "user"));
  const { jwt, ...minted } = await ask(rail, key, request);
  keeping(target, () => create(target, file, formatCreds(jwt, key)));
  rmSync(pending, { force: true });
  return { ...minted, file };
}

/** Mints again under the file's own key: the lifecycle stays, the expiry moves. */
export async function renewInto(rail: Rail, target: Target, file: string, text: string): Promise<MintedFile> {
  const { view } = parseCreds(text);
  const seed = /\bSU[A-Z2-7]{56}\b/.exec(text)?.[0] ?? "";
  const key = keyFromSeed(seed);
  const who = {
    owner: view.principal.owner,
    actor: view.principal.actor,
    name: view.name ?? view.principal.actor,
  };
  const looks = LOOKING.find((profile) => profile === view.profile);
  const { jwt, ...minted } = await ask(
    rail,
    key,
    looks === undefined ? agentAgain(view, who) : { profile: looks, ...who },
  );
  keeping(target, () => writePrivate(file, formatCreds(jwt, key)));
  return { ...minted, file };
}

/** Who is minted without lists. */
const LOOKING = ["observer", "admin"] as const;

function agentAgain(view: CredentialView, who: Pick<Request, "owner" | "actor" | "name">): Request {
  return {
    profile: "agent",
    ...who,
    allowSubscribe: [...view.allowSubscribe],
    allowPublish: [...view.allowPublish],
    ...(view.role === undefined ? {} : { role: view.role }),
    ...(view.capabilities.length === 0 ? {} : { capabilities: [...view.capabilities] }),
  };
}

async function ask(rail: Rail, key: SigningKey, request: Request) {
  const { jwt, principal, uid, expires } = await rail.ask(
    ProvisionerCommand.Mint,
    { ...request, userKey: key.publicKey },
    MintAnswer,
  );
  return { jwt, principal, uid, expires };
}

function isKept({ state, space }: Target, file: string): boolean {
  return dirname(file) === agentsFolder({ state, space });
}

/** Where the key of an unfinished mint waits: by the path of the file that it is for. */
function pendingKey({ state, space }: Target, file: string): string {
  const name = createHash("sha256").update(resolve(file)).digest("hex").slice(0, 32);
  return join(pendingFolder({ state, space }), `${name}.nk`);
}

/**
 * Creates a 0600 file whole; a file that appeared meanwhile stays as it is. Outside the state folder it is on its way under
 * a name that the same mint has again: what a run that died left is taken away by its repetition.
 */
function create(target: Target, file: string, text: string): void {
  if (isKept(target, file)) return writePrivate(file, text);
  const staged = `${file}.${basename(pendingKey(target, file), ".nk").slice(0, 12)}.tmp`;
  rmSync(staged, { force: true });
  writeFileSync(staged, text, { mode: 0o600, flag: "wx", flush: true });
  try {
    linkSync(staged, file);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") throw taken(file);
    throw error;
  } finally {
    rmSync(staged, { force: true });
  }
}

function taken(file: string): CotalError {
  return new CotalError(ErrorCode.AlreadyExists, `there is a file at ${file} already`, {
    outcome: Outcome.NotExecuted,
    next: "name another with --out, or remove it if nobody needs it",
  });
}

function noFolder(folder: string): CotalError {
  return new CotalError(ErrorCode.NotFound, `there is no folder ${folder}`, {
    outcome: Outcome.NotExecuted,
    next: "make it first, or name another file with --out",
  });
}
