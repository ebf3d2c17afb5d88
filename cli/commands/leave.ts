/**
 * `cotal leave [CHANNEL]`: ends a durable membership; without a channel it lists those that there are.
 *
 * A membership outlives the command that took it, which is its use: this is how it ends.
 */
import type { Command } from "commander";
import type { Session } from "../../shared/client/session-types.ts";
import { DeliveryCommand } from "../../shared/grants/commands.ts";
import { DurableLeaveAnswer, type Membership } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { typedPattern } from "../channel-names.ts";
import { memberCredentials } from "../identity.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";
import { standingMemberships } from "../standing.ts";

export function registerLeave(program: Command): void {
  const command = program
    .command("leave [channel]")
    .description("end a durable membership, so that no copies are kept any more; without a channel, list them");
  handle(command, leave);
}

async function leave({ options, out, target }: Invocation<object>, typed?: string): Promise<void> {
  const channel = typed === undefined ? undefined : typedPattern(out, typed);
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  await withSession({ target: at, credentials, out, stays: false }, async (session) => {
    if (channel === undefined) return list(session, out);
    const { data } = await session.call(EndpointName.Delivery, DeliveryCommand.DurableLeave, { channel });
    const { membership } = DurableLeaveAnswer.parse(data);
    if (membership === undefined) out.item({ kind: "left", channel, wasMember: false }, `#${channel}: no member`);
    else out.item({ kind: "left", wasMember: true, ...membership }, `#${channel} left`);
  });
}

async function list(session: Session, out: Output): Promise<void> {
  let count = 0;
  const ask = async (args: object) =>
    (await session.call(EndpointName.Delivery, DeliveryCommand.DurableList, args)).data;
  for await (const membership of standingMemberships(ask)) {
    out.item({ kind: "membership", ...membership }, wordsOf(membership));
    count += 1;
  }
  if (count === 0) out.note("no durable membership: join a durable channel, and copies are kept while you are away");
}

const wordsOf = ({ channel, state }: Membership): string => `#${channel} ${state} durable`;
