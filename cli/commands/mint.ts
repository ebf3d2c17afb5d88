/** `cotal mint`: makes a credential for an agent; the key is drawn here and never leaves. */
import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { roleDurable } from "../../shared/protocol/base/names.ts";
import { checkName } from "../../shared/protocol/chat/presence.ts";
import { grantedCapabilities } from "../../shared/protocol/endpoint/capabilities.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { typedPattern } from "../channel-names.ts";
import { UsageError, argument, listOf, collectList } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { DEFAULT_CHANNELS, mintInto } from "../minting.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { isUserSpace } from "../signin.ts";
import { table } from "../text.ts";
import { CAPABILITY_HELP } from "./actor.ts";

const PROFILES = ["agent", "observer", "admin"] as const;
type Profile = (typeof PROFILES)[number];
const LOOKS = "observer reads all chat and sees who hears what; admin direct messages too; neither posts";

type MintOptions = {
  readonly owner: string;
  readonly actor: string;
  readonly profile: Profile;
  readonly name?: string;
  readonly subscribe?: string[];
  readonly publish?: string[];
  readonly role?: string;
  readonly capability?: string[];
  readonly out?: string;
};

export function registerMint(program: Command): void {
  const command = program
    .command("mint")
    .description("make a credential for an agent, or for somebody who only looks")
    .requiredOption("--owner <owner>", "whose agent it is: a label such as acme, or an owner token")
    .requiredOption("--actor <actor>", "its name within the owner: letters, digits, _")
    .addOption(new Option("--profile <profile>", LOOKS).choices(PROFILES).default("agent"))
    .option("--name <name>", "display name (default: the actor)")
    .option("--subscribe <channels>", "channels it may read, separated by commas (default general)", listOf)
    .option("--publish <channels>", "channels it may post to (default: those it may read)", listOf)
    .option("--role <role>", "the role whose queue it serves")
    .option("--capability <names>", CAPABILITY_HELP, collectList)
    .option("--out <file>", "where to write it (default: kept in the state folder)");
  handle<MintOptions>(command, mint);
}

/** A credential that lives for a month would be a way around the sign-in (decision H49). */
function signedInto(space: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `people sign in to space ${space}, and nothing is minted there`, {
    outcome: Outcome.NotExecuted,
    next: "act as any name with --as NAME; cotal actor grant NAME makes one with lists of its own",
  });
}

async function mint({ options, out, target }: Invocation<MintOptions>): Promise<void> {
  const at = target();
  if (isUserSpace(at)) throw signedInto(at.space);
  const { actor } = argument(() => principal("local", options.actor));
  const subscribe = (options.subscribe ?? DEFAULT_CHANNELS).map((name) => typedPattern(out, name));
  const publish = (options.publish ?? subscribe).map((name) => typedPattern(out, name));
  const name = argument(() => checkName(options.name ?? actor));
  const { role } = options;
  if (role !== undefined) argument(() => roleDurable(role));
  const capabilities = argument(() => grantedCapabilities(options.capability ?? []));
  const held = capabilities.length === 0 ? {} : { capabilities };
  const { profile } = options;
  const extra = LISTS.find((list) => options[list] !== undefined);
  if (profile !== "agent" && extra !== undefined) {
    throw new UsageError(`an ${profile} takes no --${extra}`, { next: "leave it out, or mint an agent" });
  }
  const lists = {
    allowSubscribe: subscribe,
    allowPublish: publish,
    ...(role === undefined ? {} : { role }),
    ...held,
  };
  const file = options.out === undefined ? trustPaths(at.state).agentCreds(at.space, actor) : resolve(options.out);
  const minted = await withRail(at, await askingCredentials(at, options, out), (rail) =>
    mintInto(rail, at, file, {
      profile,
      owner: options.owner,
      actor,
      name,
      ...(profile === "agent" ? lists : {}),
    }),
  );
  const item = {
    kind: "minted",
    ...minted,
    name,
    ...(profile === "agent" ? { subscribe, publish, ...(role === undefined ? {} : { role }), ...held } : { profile }),
  };
  out.item(
    item,
    ...table([
      ["principal", minted.principal],
      ["uid", minted.uid],
      ...(profile === "agent"
        ? [
            ["reads", listed(subscribe)],
            ["posts to", listed(publish)],
          ]
        : [["looks as", profile]]),
      ...(role === undefined ? [] : [["role", role]]),
      ...(capabilities.length === 0 ? [] : [["may", capabilities.join(", ")]]),
      ["expires", new Date(minted.expires * 1000).toISOString()],
      ["file", minted.file],
    ]),
  );
}

const LISTS = ["subscribe", "publish", "role", "capability"] as const;

const listed = (channels: readonly string[]): string => (channels.length === 0 ? "nothing" : channels.join(", "));
