/**
 * `cotal pending [WHO]`: what waits for whom. A member asks for itself; who runs the space asks for anybody.
 *
 * Invariant: a figure stands beside the moment that it is of, and what is posted and not yet copied is said: an empty
 * inbox of a member whose copies are not written is no proof.
 */
import type { Command } from "commander";
import { DeliveryCommand } from "../../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { dotForm, parseDotForm } from "../../shared/protocol/base/principals.ts";
import {
  type FanoutState,
  type MemberPending,
  PendingAnswer,
  type RolesLeft,
  type TierPending,
} from "../../shared/protocol/endpoint/proof-shapes.ts";
import type { Credentials } from "../../shared/client/identity.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { ago, instant, withInstants } from "../ages.ts";
import { UsageError } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

type Options = { readonly all?: boolean };
type Told = {
  readonly asOf: number;
  readonly fanout: FanoutState;
  readonly members: readonly MemberPending[];
  readonly queues: readonly TierPending[];
  /** Roles that requests wait for and that the answer had no room for. */
  readonly rolesLeft: RolesLeft;
};

const NONE_LEFT: RolesLeft = { roles: 0, whole: true };

export function registerPending(program: Command): void {
  const command = program
    .command("pending [who]")
    .description(
      "show what waits for whom: direct messages, copies of channels, the role's queue; the operator asks for anybody, a member for itself",
    )
    .option("--all", "those for whom nothing waits, too");
  handle<Options>(command, pending);
}

async function pending({ options, out, target }: Invocation<Options>, who?: string): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  if (isOperators(credentials)) {
    const told = await everybodys(at, credentials, who);
    return print(out, told, options.all === true || who !== undefined);
  }
  if (who !== undefined) {
    throw new UsageError("a member sees what waits for itself", {
      next: "leave WHO out, or ask with the operator's credential",
    });
  }
  const { asOf, fanout, member } = await withSession({ target: at, credentials, out, stays: false }, (session) =>
    session.proof.pending(),
  );
  print(out, { asOf, fanout, members: [member], queues: [], rolesLeft: NONE_LEFT }, true);
}

function isOperators(credentials: Credentials): boolean {
  return credentials.kind === "static" && "file" in credentials
    ? readCredsFile(credentials.file).view.profile === "operator"
    : false;
}

async function everybodys(at: Target, credentials: Credentials, who: string | undefined): Promise<Told> {
  const of = who === undefined ? undefined : parseDotForm(who);
  return withRail(at, credentials, async (rail) => {
    const members: MemberPending[] = [];
    const queues: TierPending[] = [];
    let rolesLeft = NONE_LEFT;
    let cursor: number | undefined;
    let last: PendingAnswer;
    do {
      const args = { ...(of === undefined ? {} : { of }), ...(cursor === undefined ? {} : { cursor }) };
      last = await rail.askDelivery(DeliveryCommand.Pending, args, PendingAnswer);
      members.push(...last.members.filter((member) => of !== undefined || isNamed(member, who)));
      if (who === undefined) {
        queues.push(...(last.queues ?? []));
        ({ rolesLeft = rolesLeft } = last);
      }
      ({ cursor } = last);
    } while (cursor !== undefined);
    if (who !== undefined && members.length === 0) throw nobody(who);
    return { asOf: last.asOf, fanout: last.fanout, members, queues, rolesLeft };
  });
}

function isNamed({ name, actor }: MemberPending, who: string | undefined): boolean {
  return who === undefined || [name, actor].some((one) => one.toLowerCase() === who.toLowerCase());
}

function nobody(who: string): CotalError {
  return new CotalError(ErrorCode.NotFound, `nobody called ${who} has an inbox now`, {
    outcome: Outcome.Executed,
    next: "cotal pending --all lists who has one; what an ended lifecycle had not fetched, nobody gets",
  });
}

function print(out: Output, { asOf, fanout, members, queues, rolesLeft }: Told, all: boolean): void {
  const rows: string[][] = [];
  /** A queue is one, however many share it. */
  const roles = new Map(queues.map((queue) => [queue.role, queue]));
  let quiet = 0;
  for (const member of members.toSorted((a, b) => oldestOf(a) - oldestOf(b))) {
    const tiers = member.tiers.filter((tier) => all || isWaiting(tier));
    if (tiers.length === 0) {
      quiet += 1;
      continue;
    }
    out.item({ kind: "pending", ...member, tiers: member.tiers.map(timed) });
    for (const tier of tiers) {
      if (tier.tier === "role") roles.set(tier.role, tier);
      else rows.push(rowOf(member, tier, asOf));
    }
  }
  for (const queue of queues) out.item({ kind: "pending-role", ...timed(queue) });
  for (const queue of roles.values()) rows.push(rowOf(undefined, queue, asOf));
  const { stored, copied } = fanout;
  const whom = rows.length === 0 ? `any of ${quiet} members` : `${quiet} more`;
  const more = quiet === 0 ? "" : `nothing waits for ${whom}; `;
  const behind =
    copied < stored ? `posts from ${copied + 1} to ${stored} have no copies yet` : "every post has its copies";
  out.item(
    { kind: "pending-as-of", asOf: instant(asOf), stored, copied, quiet, rolesLeft },
    ...(rows.length === 0 ? [] : table([HEAD, ...rows])),
    ...leftText(rolesLeft),
    `${more}as of ${instant(asOf)}; ${behind}`,
  );
}

/** Nothing where every role is shown. */
function leftText({ roles, whole }: RolesLeft): string[] {
  if (roles === 0 && whole) return [];
  const many = whole ? String(roles) : `at least ${roles}`;
  return [`requests wait for ${many} more roles than one look takes in: those that nobody was given, and with fewest`];
}

const timed = (tier: TierPending) => withInstants(tier, "oldestAt", "deliveredAt", "settledAt");

const HEAD = ["who", "what", "waiting", "handed out", "oldest", "last handed out", "last settled"];
const WHAT = { dm: "direct messages", durable: "channel copies", role: "requests" } as const;

function rowOf(member: MemberPending | undefined, tier: TierPending, asOf: number): string[] {
  const who = member === undefined ? `role ${tier.role ?? ""}` : `${oneLine(member.name)} (${dotForm(member)})`;
  if (tier.state === "missing")
    return [who, WHAT[tier.tier], `${tier.stored}: nobody can fetch it`, "-", "-", "-", "-"];
  const { waiting, handed, redelivered, oldestAt, deliveredAt, settledAt } = tier;
  const again = redelivered === 0 ? "" : ` (${redelivered} again)`;
  const times = [oldestAt, deliveredAt, settledAt].map((at) => ago(asOf, at));
  return [who, WHAT[tier.tier], String(waiting), `${handed}${again}`, ...times];
}

const isWaiting = (tier: TierPending): boolean => tier.state === "missing" || tier.waiting + tier.handed > 0;

/** The longest wait first. */
function oldestOf({ tiers }: MemberPending): number {
  return Math.min(...tiers.map((tier) => (tier.state === "known" ? (tier.oldestAt ?? Infinity) : Infinity)));
}
