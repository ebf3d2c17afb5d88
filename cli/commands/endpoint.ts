/** `cotal endpoint assign`: whose a name is. Once, by the operator, for good (§13.2). */
import type { Command } from "commander";
import { ProvisionerCommand } from "../../shared/grants/commands.ts";
import { EndpointAssignAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { operatorCredentials, withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { endpointName } from "./endpoints.ts";

type AssignOptions = { readonly owner: string };

export function registerEndpoint(program: Command): void {
  const endpoint = program.command("endpoint").description("give names of endpoints to who serves them");
  handle<AssignOptions>(
    endpoint
      .command("assign")
      .description("give a name to an owner, for good; its actors with the capability serve may then serve it")
      .argument("<name>", "under a domain of the owner's, turned around: com.acme.deploy")
      .requiredOption("--owner <owner>", "the owner token, or the label that its agents are minted under"),
    assign,
  );
}

async function assign({ options, out, target }: Invocation<AssignOptions>, name = ""): Promise<void> {
  const at = target();
  const args = { endpoint: endpointName(name), owner: options.owner };
  const assigned = await withRail(at, operatorCredentials(at), (rail) =>
    rail.ask(ProvisionerCommand.EndpointAssign, args, EndpointAssignAnswer),
  );
  out.item({ kind: "assigned", ...assigned }, `${assigned.endpoint} belongs to ${assigned.owner}`);
  out.note("its actors serve it with the capability serve: cotal mint, or cotal actor grant, --capability serve");
}
