/** `cotal actor grant|narrow|revoke|retire|rotate|list`: who may act under which name, with which lists. */
import type { Command } from "commander";
import type { z } from "zod";
import { AuthCommand } from "../../shared/grants/commands.ts";
import { DERIVED_OWNER_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { type Principal, dotForm, parseDotForm, principal } from "../../shared/protocol/base/principals.ts";
import { roleDurable } from "../../shared/protocol/base/names.ts";
import { checkName } from "../../shared/protocol/chat/presence.ts";
import { CAPABILITY_WORDS, grantedCapabilities, parseCapability } from "../../shared/protocol/endpoint/capabilities.ts";
import {
  ActorAnswer,
  ActorListAnswer,
  ActorRevokeAnswer,
  type Narrowing,
  RetireLifecycleAnswer,
  TakeoverLifecycleAnswer,
  type ShownActor,
} from "../../shared/protocol/endpoint/auth-shapes.ts";
import { typedPattern } from "../channel-names.ts";
import { Exit, UsageError, argument, listOf, collectList } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { sayIfLong } from "../patience.ts";
import { type Invocation, handle } from "../program.ts";
import { OWN_ACTOR, demandSignIn, exchangeOnce } from "../signin.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

type Lists = {
  readonly subscribe?: string[];
  readonly publish?: string[];
  readonly role?: string;
  readonly capability?: string[];
};
type GrantOptions = Lists & { readonly name?: string };
type ListOptions = { readonly owner?: string };
type RetireOptions = { readonly uid?: string };

/** Of the option `--capability`, wherever there is one. */
export const CAPABILITY_HELP =
  "what it may ask for, separated by commas, or given again: com.example.echo, com.example.echo:audit, with @all " +
  `behind to ask all instances at once; or one of ${CAPABILITY_WORDS.join(", ")}`;

export function registerActor(program: Command): void {
  const actor = program.command("actor").description("who may act under which name in a space that people sign in to");
  const grant = withLists(
    actor
      .command("grant <who>")
      .description(
        "let somebody act under a name, NAME of your own or OWNER.NAME, with these lists: what is left out it has not, or has no more",
      ),
  ).option("--name <name>", "display name (default: the actor)");
  handle<GrantOptions>(grant, grantActor);
  const narrow = withLists(actor.command("narrow <who>").description("take away: what is left out stays as it is"));
  handle<Lists>(narrow, narrowActor);
  handle(
    actor
      .command("revoke <who>")
      .description("take its grant back: its connections end, and its next connect is refused"),
    revokeActor,
  );
  const retire = actor
    .command("retire <who>")
    .description("end its lifecycle for good, with everything that it left; fails until that is proved")
    .option("--uid <uid>", "the lifecycle that is meant (default: the one it has)");
  handle<RetireOptions>(retire, retireActor);
  handle(
    actor.command("rotate <who>").description("end all that it is signed in with; it keeps its grant and its inbox"),
    rotateActor,
  );
  const list = actor.command("list").description("show every actor").option("--owner <token>", "of this owner only");
  handle<ListOptions>(list, listActors);
}

function withLists(command: Command): Command {
  return command
    .option("--subscribe <channels>", "channels it may read, separated by commas", listOf)
    .option("--publish <channels>", "channels it may post to, separated by commas", listOf)
    .option("--role <role>", "the role whose queue it serves")
    .option("--capability <names>", CAPABILITY_HELP, collectList);
}

async function grantActor(invocation: Invocation<GrantOptions>, who = ""): Promise<void> {
  const { options, out } = invocation;
  const name = options.name === undefined ? undefined : argument(() => checkName(options.name ?? ""));
  const { role, ...lists } = listsOf(out, options);
  argument(() => grantedCapabilities(lists.capabilities ?? []));
  const { actor, narrowing } = await ask(invocation, who, AuthCommand.ActorGrant, ActorAnswer, (target) => ({
    ...target,
    ...lists,
    ...(role === undefined || role === null ? {} : { role }),
    ...(name === undefined ? {} : { name }),
  }));
  show(out, "granted", actor);
  tellNarrowing(out, narrowing);
  const { allowSubscribe, allowPublish, capabilities } = actor;
  if (allowSubscribe.length + allowPublish.length === 0) {
    out.note("it may neither read nor post; if it shall, grant it again with --subscribe and --publish");
  }
  await tellUnregistered(invocation, capabilities);
}

/** What a capability opens is read at a connect: one of an endpoint that is not there yet opens nothing. */
async function tellUnregistered({ options, out, target }: Invocation<object>, capabilities: readonly string[]) {
  const named = capabilities.map(parseCapability).flatMap((one) => (one?.kind === "endpoint" ? [one.endpoint] : []));
  if (named.length === 0) return;
  const at = target();
  const found = await withRail(at, await askingCredentials(at, options, out), (rail) => rail.endpoints.endpoints());
  const there = new Set(found.map(({ endpoint }) => endpoint));
  for (const endpoint of new Set(named)) {
    if (!there.has(endpoint))
      out.note(`${endpoint} has not registered yet: connect again once cotal endpoints shows it`);
  }
}

async function narrowActor(invocation: Invocation<Lists>, who = ""): Promise<void> {
  const lists = listsOf(invocation.out, invocation.options);
  if (Object.keys(lists).length === 0) {
    throw new UsageError("it is not said what to take away", {
      next: "give the lists that are to be left: --subscribe, --publish, --role, --capability",
    });
  }
  const { actor, narrowing } = await ask(invocation, who, AuthCommand.ActorNarrow, ActorAnswer, (target) => ({
    ...target,
    ...lists,
  }));
  show(invocation.out, "narrowed", actor);
  tellNarrowing(invocation.out, narrowing);
}

/** What the grant no longer holds is gone for good only once this says nothing. */
function tellNarrowing(out: Output, narrowing: Narrowing | undefined): void {
  if (narrowing === undefined) return;
  const { copies, connections } = narrowing;
  if (copies === "pending") tellPendingCopies(out);
  if (connections === "ended") return;
  const text = "who is connected under it keeps what it had until its sign-in is renewed: within fifteen minutes";
  out.notice({ kind: "notice", about: "connections", state: connections }, text);
}

function tellPendingCopies(out: Output): void {
  const text =
    "stored copies that it may no longer read are not taken back yet: the delivery service does it when it is there";
  out.notice({ kind: "notice", about: "copies", state: "pending" }, text);
}

async function revokeActor(invocation: Invocation<object>, who = ""): Promise<Exit> {
  const { out } = invocation;
  return about(invocation, who, async (p, ask) => {
    const { uid, connections, remains, copies } = await ask(AuthCommand.ActorRevoke, p, ActorRevokeAnswer);
    const id = dotForm(p);
    out.item(
      { kind: "revoked", principal: id, uid, ...(remains === undefined ? {} : { remains }) },
      `${oneLine(id)} is revoked: its next connect is refused`,
    );
    if (copies === "pending") tellPendingCopies(out);
    if (remains === undefined) return Exit.Done;
    out.notice(
      { kind: "notice", about: "remains", principal: id, connections: connections?.state },
      `its lifecycle is not over: ${oneLine(remains)}; go on with cotal actor retire ${oneLine(id)}`,
    );
    return Exit.Findings;
  });
}

async function retireActor(invocation: Invocation<RetireOptions>, who = ""): Promise<Exit> {
  const { options, out } = invocation;
  return about(invocation, who, async (p, ask) => {
    const lifecycleUid = options.uid ?? (await lifecycleOf(p, ask));
    const { opId } = await ask(AuthCommand.RetireLifecycle, { ...p, lifecycleUid }, RetireLifecycleAnswer);
    const id = dotForm(p);
    const item = { kind: "retired", principal: id, uid: lifecycleUid, opId };
    out.item(item, `${oneLine(id)} is retired: nobody is connected as it, and the name is free`);
    return Exit.Done;
  });
}

async function rotateActor(invocation: Invocation<object>, who = ""): Promise<Exit> {
  const { out } = invocation;
  return about(invocation, who, async (p, ask) => {
    const lifecycleUid = await lifecycleOf(p, ask);
    const { epoch } = await ask(AuthCommand.TakeoverLifecycle, { ...p, lifecycleUid }, TakeoverLifecycleAnswer);
    const id = dotForm(p);
    const item = { kind: "rotated", principal: id, uid: lifecycleUid, epoch };
    out.item(item, `${oneLine(id)} is signed out everywhere; it keeps its grant and its inbox`);
    out.note("what can sign in as it comes back by itself, as a tail that runs does; cotal actor revoke keeps it out");
    return Exit.Done;
  });
}

/** What takes away is answered once copies are taken back and connections proved ended: two looks, seconds apart. */
const END_DEADLINE_MS = 45_000;
const PROVING = "every server is asked whether anybody is left with what was taken back: this takes some seconds";

type Ask = <S extends z.ZodType>(command: AuthCommand, args: object, answer: S) => Promise<z.infer<S>>;

/** The lifecycle that a name has now, as the ledger has it. */
async function lifecycleOf(p: Principal, ask: Ask): Promise<string> {
  for (let cursor: number | undefined; ;) {
    const args = { owner: p.owner, ...(cursor === undefined ? {} : { cursor }) };
    const page = await ask(AuthCommand.ActorList, args, ActorListAnswer);
    const found = page.actors.find(({ actor }) => actor === p.actor);
    if (found !== undefined) return found.lifecycleUid;
    if (page.cursor === undefined)
      throw new UsageError(`there is no actor ${dotForm(p)}`, { next: "cotal actor list" });
    ({ cursor } = page);
  }
}

/** Resolves whom it is about, and asks the auth service of it, once or more. */
async function about<T>(
  { options, out, target }: Invocation<object>,
  who: string,
  run: (who: Principal, ask: Ask) => Promise<T>,
): Promise<T> {
  const at = target();
  demandSignIn(at);
  const parsed = argument(() => parseWho(who));
  const credentials = await askingCredentials(at, options, out);
  const p = typeof parsed === "string" ? principal(await ownOwner(at), parsed) : parsed;
  return withRail(at, credentials, (rail) =>
    sayIfLong(out, PROVING, () =>
      run(p, (command, args, answer) => rail.askAuth(command, args, answer, END_DEADLINE_MS)),
    ),
  );
}

/** Asks the auth service one thing about somebody. */
async function ask<S extends z.ZodType>(
  invocation: Invocation<object>,
  who: string,
  command: AuthCommand,
  answer: S,
  args: (who: Principal) => object,
): Promise<z.infer<S>> {
  return about(invocation, who, (p, asked) => asked(command, args(p), answer));
}

/** `OWNER.NAME`, or a name of one's own. */
function parseWho(text: string): Principal | string {
  const whole = parseDotForm(text);
  if (whole !== undefined && DERIVED_OWNER_TOKEN.test(whole.owner)) return whole;
  return principal("local", text).actor;
}

/** The owner token of whoever has signed in here. */
async function ownOwner(at: Target): Promise<string> {
  return (await exchangeOnce(at, OWN_ACTOR)).owner;
}

function listsOf(out: Output, { subscribe, publish, role, capability }: Lists) {
  const patterns = (list: readonly string[]): string[] => list.map((name) => typedPattern(out, name));
  if (role !== undefined && role !== "") argument(() => roleDurable(role));
  return {
    ...(subscribe === undefined ? {} : { allowSubscribe: patterns(subscribe) }),
    ...(publish === undefined ? {} : { allowPublish: patterns(publish) }),
    ...(role === undefined ? {} : { role: role === "" ? null : role }),
    ...(capability === undefined ? {} : { capabilities: capability }),
  };
}

async function listActors({ options, out, target }: Invocation<ListOptions>): Promise<void> {
  const at = target();
  const { owner } = options;
  if (owner !== undefined && !DERIVED_OWNER_TOKEN.test(owner)) {
    throw new UsageError("--owner takes an owner token", { next: "u_ and 26 characters, as whoami prints it" });
  }
  demandSignIn(at);
  const credentials = await askingCredentials(at, options, out);
  await withRail(at, credentials, async (rail) => {
    let cursor: number | undefined;
    let shown = 0;
    do {
      const args = { ...(owner === undefined ? {} : { owner }), ...(cursor === undefined ? {} : { cursor }) };
      const page: z.infer<typeof ActorListAnswer> = await rail.askAuth(AuthCommand.ActorList, args, ActorListAnswer);
      for (const actor of page.actors) show(out, "actor", actor);
      for (const key of page.unreadable) {
        out.notice({ kind: "notice", about: "unreadable", key }, `the row ${oneLine(key)} does not parse`);
      }
      shown += page.actors.length;
      ({ cursor } = page);
    } while (cursor !== undefined);
    if (shown === 0) out.note("nobody has signed in yet");
  });
}

function show(out: Output, kind: string, row: ShownActor): void {
  const { owner, actor, name, state, lifecycleUid, allowSubscribe, allowPublish, role, capabilities, parent } = row;
  const item = { kind, principal: `${owner}.${actor}`, name, state, uid: lifecycleUid, actorKind: row.kind };
  const lists = { allowSubscribe, allowPublish, capabilities, ...(role === undefined ? {} : { role }) };
  out.item(
    { ...item, ...lists, ...(parent === undefined ? {} : { parent: `${parent.owner}.${parent.actor}` }) },
    ...table([
      [`${owner}.${actor}`, state, oneLine(name)],
      ["  reads", allowSubscribe.map(oneLine).join(", ") || "nothing"],
      ["  posts to", allowPublish.map(oneLine).join(", ") || "nothing"],
      ...(role === undefined ? [] : [["  role", role]]),
      ...(capabilities.length === 0 ? [] : [["  may", capabilities.join(", ")]]),
    ]),
  );
}
