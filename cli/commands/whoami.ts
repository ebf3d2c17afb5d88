/** `cotal whoami`: the principal that a command with the same options would act as. */
import type { Command } from "commander";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { parseCreds, readCredsFile } from "../../shared/trust/creds.ts";
import type { Credentials } from "../../shared/client/identity.ts";
import { memberCredentials } from "../identity.ts";
import type { Item } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { exchangeOnce, loginOf } from "../signin.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

export function registerWhoami(program: Command): void {
  handle(program.command("whoami").description("show who a command acts as, and how that is proved"), whoami);
}

type Shown = {
  readonly principal: string;
  readonly uid?: string;
  readonly by: string;
  /** Unix seconds. */
  readonly expires?: number;
};

async function whoami({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const shown = await identityOf(at, await memberCredentials(at, options, out));
  const { principal, uid, by, expires } = shown;
  const item: Item = { kind: "whoami", space: at.space, ...shown };
  out.item(
    item,
    ...table([
      ["principal", oneLine(principal)],
      ["space", at.space],
      ...(uid === undefined ? [] : [["uid", uid]]),
      ["by", by],
      ...(expires === undefined ? [] : [["until", new Date(expires * 1000).toISOString()]]),
    ]),
  );
}

function ofAnotherSpace(space: string, asked: string): CotalError {
  return new CotalError(
    ErrorCode.FailedPrecondition,
    `the credential is for space ${space}, and the options say ${asked}`,
    {
      outcome: Outcome.NotExecuted,
      next: `add --space ${space}, or use a credential of that space`,
    },
  );
}

const BY = { dev: "development issuer", token: "identity token" } as const;

async function identityOf(at: Target, credentials: Credentials): Promise<Shown> {
  switch (credentials.kind) {
    case "user": {
      const { owner, actor, lifecycleUid, expiresAt } = await exchangeOnce(at, credentials.actor);
      const login = loginOf(at);
      const by = login.kind === "provider" ? login.issuer : BY[login.kind];
      return { principal: dotForm({ owner, actor }), uid: lifecycleUid, by, expires: expiresAt };
    }
    case "static": {
      const { view } = "file" in credentials ? readCredsFile(credentials.file) : parseCreds(credentials.text);
      const { principal, uid, expires, space } = view;
      if (space !== at.space) throw ofAnotherSpace(space, at.space);
      const end = expires === undefined ? {} : { expires };
      return { principal: dotForm(principal), uid, by: "credential file", ...end };
    }
    case "open": {
      const { actor, uid } = credentials;
      return { principal: `local.${actor}`, ...(uid === undefined ? {} : { uid }), by: "nothing: the space is open" };
    }
  }
}
