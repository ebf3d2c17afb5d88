/** `cotal backup`: everything of a space that may come back, into a folder, while the space goes on working. */
import { rmSync } from "node:fs";
import { resolve } from "node:path";
import type { Command } from "commander";
import { z } from "zod";
import { openConnection } from "../../shared/broker/connect.ts";
import { beginFolder, discardFolder } from "../../shared/backup/folder.ts";
import type { Manifest } from "../../shared/backup/format.ts";
import { backUp } from "../../shared/backup/read-space.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { spaceToken } from "../../shared/protocol/base/subjects.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { argument } from "../exit.ts";
import { assertKnown } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { reached } from "../reach.ts";
import { keeperOptions } from "../keeper.ts";
import { table } from "../text.ts";

export function registerBackup(program: Command): void {
  const command = program
    .command("backup <space> <folder>")
    .description("write a backup of a space to a new folder; the space goes on working");
  handle(command, backup);
}

const Trusted = z.looseObject({ creds: z.string() });

async function backup({ out, target }: Invocation<object>, name = "", path = ""): Promise<void> {
  const at = { ...target(), space: argument(() => spaceToken(name)) };
  if (at.auth === "open") {
    throw new CotalError(ErrorCode.FailedPrecondition, "an open space has no backup of its own", {
      outcome: Outcome.NotExecuted,
      next: `stop it with cotal down, and copy ${at.state}`,
    });
  }
  assertKnown(at);
  const folder = resolve(path);
  beginFolder(folder);
  let manifest: Manifest;
  try {
    const { creds } = Trusted.parse(await runTrust(TrustCommand.Backup, { state: at.state, space: at.space, folder }));
    const credential = readCredsFile(creds);
    rmSync(creds);
    const dialed = keeperOptions(at.server, credential, { kind: "endless" });
    const connection = await reached(at, () => openConnection(dialed));
    try {
      const { nc, version } = connection;
      const onPart = (part: string, lines: number): void => out.note(`${part}: ${lines}`);
      manifest = await backUp({ nc, space: at.space, folder, brokerVersion: version, now: Date.now, onPart });
    } finally {
      await connection.close();
    }
  } catch (thrown) {
    discardFolder(folder);
    throw thrown;
  }
  const { stores, digest, began, ended } = manifest;
  const messages = Object.fromEntries(Object.entries(stores).map(([part, store]) => [part, store.messages]));
  out.item(
    { kind: "backup", space: at.space, folder, digest, messages, ms: ended - began },
    ...table([
      ["backup of", at.space],
      ["folder", folder],
      ...Object.entries(messages).map(([part, count]): [string, string] => [part, `${count} messages`]),
      ["digest", digest],
    ]),
  );
  out.note("the folder is a secret: it holds what everybody wrote, and what owners are derived from");
}
