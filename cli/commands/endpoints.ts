/** `cotal endpoints` and `cotal describe`: what serves in a space, and what it takes and answers. */
import type { Command } from "commander";
import type { SchemaClosure } from "../../shared/protocol/contract/closure.ts";
import type { CommandDocument } from "../../shared/protocol/contract/documents.ts";
import { endpointToken } from "../../shared/protocol/endpoint/grammar.ts";
import type { ShownEndpoint } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { argument } from "../exit.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { indented, oneLine, table } from "../text.ts";

export function registerEndpoints(program: Command): void {
  handle(
    program
      .command("endpoints")
      .argument("[endpoint]", "of this name only")
      .description("list what serves commands, as it registered; cotal describe asks it"),
    endpoints,
  );
}

export function registerDescribe(program: Command): void {
  handle(
    program
      .command("describe")
      .argument("<endpoint>", "such as provisioner, or com.acme.deploy")
      .argument("[command]", "one command: what it takes and answers, as JSON Schemas that were verified")
      .description("show what an endpoint serves"),
    describe,
  );
}

/** Refuses here what is no name of an endpoint. */
export function endpointName(text: string): string {
  argument(() => endpointToken(text));
  return text;
}

async function endpoints({ options, out, target }: Invocation<object>, name?: string): Promise<void> {
  const at = target();
  const wanted = name === undefined ? undefined : endpointName(name);
  const credentials = await askingCredentials(at, options, out, {});
  const found = await withRail(at, credentials, (rail) => rail.endpoints.endpoints(wanted));
  if (out.json) for (const entry of found) out.item({ kind: "endpoint", ...entry });
  else if (found.length === 0) out.item({ kind: "endpoints" }, "nothing has registered");
  else
    out.item({ kind: "endpoints" }, ...table([["endpoint", "state", "epoch", "instance", "owner"], ...found.map(row)]));
}

function row({ endpoint, state, epoch, instanceId, owner }: ShownEndpoint): string[] {
  return [endpoint, state ?? "unknown", epoch === undefined ? "-" : String(epoch), instanceId, owner].map(oneLine);
}

async function describe({ options, out, target }: Invocation<object>, name = "", command?: string): Promise<void> {
  const at = target();
  const endpoint = endpointName(name);
  const credentials = await askingCredentials(at, options, out, {});
  await withRail(at, credentials, async (rail) => {
    if (command !== undefined) {
      const {
        command: shown,
        input,
        output,
        by,
        registrationRevision,
      } = await rail.endpoints.resolve(endpoint, command);
      const [takes, answers] = [input, output].map(schemasOf);
      out.item(
        { kind: "command", endpoint, ...shown, ...by, registrationRevision, input: takes, output: answers },
        `${endpoint} ${oneLine(shown.name)}  ${traits(shown).map(oneLine).join(", ")}`,
        `takes    ${schemaText(input)}`,
        `answers  ${schemaText(output)}`,
      );
      return;
    }
    const { descriptor, by } = await rail.endpoints.describe(endpoint);
    const { commands, clusters, registrationRevision } = descriptor;
    const sorted = commands.toSorted((a, b) => (a.name < b.name ? -1 : 1));
    out.item(
      { kind: "descriptor", ...descriptor, ...by },
      `${endpoint}  instance ${by.instanceId}  epoch ${by.epoch}  registration ${registrationRevision}`,
      ...clusters.map(({ urn, revision }) => `  ${oneLine(urn)}, revision ${revision}`),
      ...table(sorted.map((one) => [oneLine(one.name), ...traits(one).map(oneLine)])),
    );
    if (commands.length === 0) out.note("it shows you no command: what you may call is cut to your own rights");
    else out.note(`cotal describe ${endpoint} COMMAND shows what one takes and answers`);
  });
}

/** What a person wants to know of a command before calling it. */
function traits({ effect, class: kind, modes, capability }: CommandDocument): string[] {
  return [
    effect === "read" ? "reads" : "changes something",
    kind === "journal" ? "is journaled: submitted, not called" : "",
    modes === undefined ? "" : `about somebody (${modes.join(", ")})`,
    capability === undefined ? "" : `needs ${capability}`,
  ].filter((text) => text !== "");
}

/** The schema, and what it refers to by digest. */
function schemasOf({ root, members }: SchemaClosure): object {
  const others = [...members].filter(([digest]) => digest !== root.digest);
  return {
    schema: root.value,
    ...(others.length === 0
      ? {}
      : { refersTo: Object.fromEntries(others.map(([digest, { value }]) => [digest, value])) }),
  };
}

function schemaText({ root }: SchemaClosure): string {
  return indented(JSON.stringify(root.value, undefined, 2), 9);
}
