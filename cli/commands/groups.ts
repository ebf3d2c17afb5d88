/** `cotal groups show` and `groups set`: how many writers of copies the delivery service divides its members among (H25). */
import type { Command } from "commander";
import { DeliveryCommand, ProvisionerCommand } from "../../shared/grants/commands.ts";
import { GroupsShowAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { GroupsSetAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { MAX_GROUPS } from "../../shared/protocol/ledger/member-rows.ts";
import { wholeNumber } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";

export function registerGroups(program: Command): void {
  const groups = program.command("groups").description("member groups: who writes the copies of whom");
  handle(groups.command("show").description("show how many there are, and how many are wanted"), show);
  handle(
    groups.command("set <n>").description(`have the delivery service make it so many (1 to ${MAX_GROUPS})`),
    change,
  );
}

async function show({ options, out, target }: Invocation<object>): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out);
  const { wanted, inForce, state } = await withRail(at, credentials, (rail) =>
    rail.askDelivery(DeliveryCommand.GroupsShow, {}, GroupsShowAnswer),
  );
  const found = { kind: "groups", wanted, inForce, state } as const;
  if (state === "changed") return out.item(found, `member groups: ${inForce}`);
  out.item(found, `member groups: ${inForce} now, ${wanted} wanted; the delivery service is about to change it`);
}

async function change({ options, out, target }: Invocation<object>, count = ""): Promise<void> {
  const args = { groups: wholeNumber("<n>", 1, MAX_GROUPS)(count) };
  const at = target();
  const credentials = await askingCredentials(at, options, out);
  const { wanted, before } = await withRail(at, credentials, (rail) =>
    rail.ask(ProvisionerCommand.GroupsSet, args, GroupsSetAnswer),
  );
  out.item(
    { kind: "groups-set", wanted, before },
    `member groups wanted: ${wanted} (before: ${before}); the delivery service carries it out, and cotal groups show says when it has`,
  );
}
