/**
 * `cotal who`: the roster, from a read that was completed (field case 16). `cotal who CHANNEL`: who hears a channel,
 * from the membership feed (§8), with the age of what it says and what it does not cover; and whom only a mention
 * reaches there (§4).
 */
import type { Command } from "commander";
import { isCode } from "../../shared/broker/errors.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { parseDotForm } from "../../shared/protocol/base/principals.ts";
import type { RosterEntry } from "../../shared/protocol/chat/presence.ts";
import type { FeedAge, FeedMember, ReachedMember } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { View } from "../../shared/protocol/endpoint/views.ts";
import { typedPattern } from "../channel-names.ts";
import { askingCredentials, namedCredentials } from "../identity.ts";
import { operatorCredentials, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { wholeRoster } from "../roster.ts";
import { OWN_ACTOR, isUserSpace, userCredentials } from "../signin.ts";
import { oneLine, table } from "../text.ts";

export function registerWho(program: Command): void {
  const command = program
    .command("who [channel]")
    .description("list who is here, or who hears a channel (as an observer, or with the scope admin)")
    .option("--all", "also who is offline");
  handle<WhoOptions>(command, who);
}

type WhoOptions = { readonly all?: boolean };

async function who(invocation: Invocation<WhoOptions>, channel?: string): Promise<void> {
  if (channel !== undefined) return whoHears(invocation, channel);
  const { options, out, target } = invocation;
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  const roster = await withRail(at, credentials, ({ reads }) => wholeRoster(reads));
  const shown = roster.entries
    .filter(({ live }) => live || options.all === true)
    .toSorted((a, b) => (a.name === b.name ? compare(a.id, b.id) : compare(a.name, b.name)));
  if (out.json) for (const { kind: type, ...entry } of shown) out.item({ kind: "member", type, ...entry });
  else if (shown.length === 0) out.item({ kind: "roster" }, "nobody is here");
  else out.item({ kind: "roster" }, ...table(shown.map(row)));
  if (roster.unreadable > 0) out.note(`${roster.unreadable} records could not be read and are left out`);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

function row({ name, id, status, role, activity }: RosterEntry): string[] {
  return [
    oneLine(name),
    status,
    role === undefined ? "" : `role ${oneLine(role)}`,
    oneLine(id),
    oneLine(activity ?? ""),
  ];
}

async function whoHears({ options, out, target }: Invocation<WhoOptions>, name: string): Promise<void> {
  const channel = typedPattern(out, name);
  const at = target();
  const asks = { view: View.Admin } as const;
  const credentials =
    (await namedCredentials(at, options, out, asks)) ??
    (isUserSpace(at) ? userCredentials(at, OWN_ACTOR, asks) : operatorCredentials(at));
  const [{ view, members, unreadable }, lists, roster] = await withRail(at, credentials, async (rail) =>
    Promise.all([rail.members(channel), rail.reached(channel), wholeRoster(rail.reads)]),
  ).catch((thrown: unknown) => {
    throw toldWho(thrown);
  });
  const names = new Map(roster.entries.map(({ id, name: shown }) => [id, shown]));
  const nameOf = (id: string): string => names.get(id) ?? parseDotForm(id)?.actor ?? "";
  const rows = members.map((member) => [oneLine(nameOf(member.id)), ...hearing(member), oneLine(member.id)]);
  if (out.json) for (const member of members) out.item({ kind: "hears", channel, ...named(names, member) });
  else if (rows.length === 0) out.item({ kind: "hears", channel }, `nobody hears #${channel}`);
  else out.item({ kind: "hears", channel }, ...table(rows));
  const here = new Set(members.filter(({ live, durable }) => live.length + durable.length > 0).map(({ id }) => id));
  const only = lists.reached.filter(({ id }) => !here.has(id));
  if (out.json) for (const member of only) out.item({ kind: "reached", channel, ...member });
  else if (only.length > 0) out.item({ kind: "reached", channel }, ...table(only.map(reachedRow)));
  if (out.json) out.item({ kind: "view", ...view });
  for (const note of notesOf(view, unreadable + lists.unreadable)) out.note(note);
}

const reachedRow = ({ name, by, id }: ReachedMember): string[] => [
  oneLine(name),
  "by mention only",
  by.map((pattern) => `#${oneLine(pattern)}`).join(" "),
  oneLine(id),
];

const named = (names: ReadonlyMap<string, string>, member: FeedMember): object => {
  const name = names.get(member.id);
  return name === undefined ? member : { ...member, name };
};

/** How, and by which patterns where it is not by the channel's own name. */
function hearing({ live, durable, omitted }: FeedMember): string[] {
  const by = [...new Set([...live, ...durable])].map((pattern) => `#${oneLine(pattern)}`).join(" ");
  const how = [
    live.length > 0 ? "live" : "",
    durable.length > 0 ? "durable" : "",
    omitted > 0 ? `perhaps: ${omitted} subscriptions not shown` : "",
  ];
  return [how.filter((word) => word !== "").join(", "), by];
}

function notesOf(view: FeedAge, unreadable: number): string[] {
  if (view.state === "none") return ["nobody has looked yet: cotal status shows whether the delivery service runs"];
  const age = Math.round(view.ageMs / 1000);
  return [
    `as seen ${age} s ago${age > OLD_SECONDS ? ": nobody looks any more; cotal status shows whether the delivery service runs" : ""}`,
    ...(view.gap === null ? [] : [`not everybody is covered: ${oneLine(view.gap)}`]),
    ...(unreadable > 0 ? [`${unreadable} rows could not be read and are left out`] : []),
  ];
}

/** A large space is looked at less often than every few seconds, and never this seldom. */
const OLD_SECONDS = 120;

/** Who may post in a channel may not see who hears it: what helps is another credential. */
function toldWho(thrown: unknown): unknown {
  if (!isCode(thrown, ErrorCode.PermissionDenied)) return thrown;
  return new CotalError(ErrorCode.PermissionDenied, "who hears a channel is shown to observers and admins alone", {
    outcome: Outcome.NotExecuted,
    next: "cotal mint --owner LABEL --actor watcher --profile observer, and then --as watcher; or the scope admin",
    cause: thrown,
  });
}
