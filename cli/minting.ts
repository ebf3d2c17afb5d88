/**
 * Making a credential file: the key is drawn here, and only its public half leaves.
 *
 * Invariants
 * 1. The seed is on disk before the provisioner is asked, so that a run that dies in between can be
 *    repeated: the same key converges on the same lifecycle.
 * 2. An existing credential file is never overwritten by another identity's.
 */
import { existsSync, rmSync, statSync } from "node:fs";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { ProvisionerCommand } from "../shared/grants/commands.ts";
import { MintAnswer, type MintArgs } from "../shared/protocol/endpoint/provisioner-shapes.ts";
import { formatCreds } from "../shared/trust/creds.ts";
import { keptKey, writePrivate } from "../shared/trust/folder.ts";
import type { Rail } from "./operator.ts";

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

/** Mints into `file`, which must not exist yet. */
export async function mintInto(rail: Rail, file: string, args: Omit<MintArgs, "userKey">): Promise<MintedFile> {
  if (existsSync(file)) throw taken(file);
  const pending = `${file}.pending`;
  const key = keptKey(pending, "user");
  const answer = await rail.ask(ProvisionerCommand.Mint, { ...args, userKey: key.publicKey }, MintAnswer);
  writePrivate(file, formatCreds(answer.jwt, key));
  rmSync(pending, { force: true });
  const { principal, uid, expires } = answer;
  return { principal, uid, file, expires };
}

function taken(file: string): CotalError {
  const what = statSync(file).isFile() ? "there is a file" : "there is something";
  return new CotalError(ErrorCode.AlreadyExists, `${what} at ${file} already`, {
    outcome: Outcome.NotExecuted,
    next: "name another with --out, or remove it if nobody needs it",
  });
}
