/**
 * Clusters as code declares them: what a server writes, with Zod shapes where a document has digests.
 *
 * The rules of supplement A are checked at once, where the declaration stands: `defineCluster` throws.
 */
import { type z } from "zod";
import { AuthzMode } from "../endpoint/modes.ts";
import { RESERVED_COMMANDS, isOwnCommand } from "../endpoint/names.ts";
import { COMMAND_TOKEN } from "../base/grammar.ts";
import { ActionMarker, AdmissionCeiling, type CommandClass, type Effect, count, isClusterUrn } from "./documents.ts";
import { contractInvalid } from "./limits.ts";
import { TraitAttachment } from "./traits.ts";

export type CommandDeclaration = {
  readonly name: string;
  /** What it takes and what it answers; left out where there is no payload. */
  readonly input?: z.ZodType;
  readonly output?: z.ZodType;
  readonly class: CommandClass;
  readonly effect: Effect;
  /** Modes that a target may be named in; with any, the command is targeted. */
  readonly modes?: readonly AuthzMode[];
  /** The named capability that a caller needs; without one the endpoint's standing grants decide. */
  readonly capability?: string;
  readonly traits?: readonly TraitAttachment[];
  readonly action?: ActionMarker;
  readonly admissionCeiling?: AdmissionCeiling;
};

export type SchemaDeclaration = { readonly name: string; readonly schema: z.ZodType };

export type ClusterDeclaration = {
  /** `<reverse-DNS name>.v<n>`. */
  readonly urn: string;
  readonly revision: number;
  readonly attributes?: readonly SchemaDeclaration[];
  readonly commands: readonly CommandDeclaration[];
  readonly events?: readonly SchemaDeclaration[];
};

type Commands<C extends ClusterDeclaration> = C["commands"][number];
export type CommandName<C extends ClusterDeclaration> = Commands<C>["name"];
type Command<C extends ClusterDeclaration, N> = Extract<Commands<C>, { readonly name: N }>;

/** What a handler is given: the parsed arguments. */
export type Args<C extends ClusterDeclaration, N extends CommandName<C>> =
  Command<C, N> extends { readonly input: infer I extends z.ZodType } ? z.output<I> : undefined;
/** What a caller has to give. */
export type ArgsIn<C extends ClusterDeclaration, N extends CommandName<C>> =
  Command<C, N> extends { readonly input: infer I extends z.ZodType } ? z.input<I> : undefined;
/** What a handler answers: a value of the wire. */
export type Result<C extends ClusterDeclaration, N extends CommandName<C>> =
  Command<C, N> extends { readonly output: infer O extends z.ZodType } ? z.input<O> : undefined;

/** Checks a declaration and hands it back with its exact type. */
export function defineCluster<const C extends ClusterDeclaration>(cluster: C): C {
  demandLawful(cluster);
  return cluster;
}

/** What a command says of itself, declared or in a document. */
type CommandFacts = {
  readonly [field in keyof Omit<CommandDeclaration, "input" | "output">]: CommandDeclaration[field] | undefined;
} & Pick<CommandDeclaration, "name" | "class" | "effect">;
type Named = { readonly name: string };

/** The rules of a cluster (supplement A), for a declaration and for a document that somebody submits. */
export function demandLawful(cluster: {
  readonly urn: string;
  readonly revision: number;
  readonly attributes?: readonly Named[];
  readonly commands: readonly CommandFacts[];
  readonly events?: readonly Named[];
}): void {
  const { urn, revision, attributes = [], commands, events = [] } = cluster;
  if (!isClusterUrn(urn)) throw refuse(urn, "has no URN of the form com.acme.deploy.v1");
  if (!count.safeParse(revision).success) throw refuse(urn, "has a revision that is no whole number from 0");
  for (const command of commands) checkCommand(urn, command);
  for (const { name } of [...attributes, ...events]) {
    if (!COMMAND_TOKEN.test(name)) throw refuse(urn, `names something ${shown(name)}; use a-z, 0-9 and -, at most 32`);
  }
  for (const [what, list] of Object.entries({ attributes, commands, events })) {
    const twice = firstTwice(list.map(({ name }) => name));
    if (twice !== undefined) throw refuse(urn, `declares ${shown(twice)} twice under ${what}`);
  }
}

/** The first text that stands in a list a second time. */
export function firstTwice(list: readonly string[]): string | undefined {
  return list.find((text, index) => list.indexOf(text) !== index);
}

/** What must hold of every command, in words that say what does not. */
const RULES: readonly (readonly [broken: (command: CommandFacts) => boolean, what: string])[] = [
  [({ name }) => !isOwnCommand(name), `is no command's name, or one of ${RESERVED_COMMANDS.join(", ")}`],
  [({ class: kind }) => kind !== "ephemeral" && kind !== "journal", "is neither ephemeral nor journal"],
  [({ effect }) => effect !== "read" && effect !== "write", "has neither the effect read nor write"],
  [({ modes }) => modes !== undefined && !areModes(modes), "has no list of authorization modes, each once"],
  [
    ({ capability }) => capability !== undefined && !COMMAND_TOKEN.test(capability),
    "needs a capability that is no token",
  ],
  [({ traits = [] }) => !traits.every((one) => TraitAttachment.safeParse(one).success), "carries a malformed trait"],
  [({ traits = [] }) => firstTwice(traits.map(({ urn }) => urn)) !== undefined, "carries a trait twice"],
  [({ action }) => action !== undefined && !ActionMarker.safeParse(action).success, "has a malformed action marker"],
  [
    ({ action, class: kind }) => action !== undefined && kind !== "journal",
    "is an action and not of the class journal",
  ],
  [
    ({ class: kind, admissionCeiling }) => (kind === "journal") !== (admissionCeiling !== undefined),
    "has to have an admissionCeiling exactly if it is of the class journal",
  ],
  [
    ({ admissionCeiling: ceiling }) => ceiling !== undefined && !AdmissionCeiling.safeParse(ceiling).success,
    "has an admissionCeiling without maxBytes, maxDepth and maxItems from 1",
  ],
];

const MODES: ReadonlySet<string> = new Set(Object.values(AuthzMode));

function areModes(modes: readonly AuthzMode[]): boolean {
  return modes.length > 0 && new Set(modes).size === modes.length && modes.every((mode) => MODES.has(mode));
}

function checkCommand(urn: string, command: CommandFacts): void {
  const rule = RULES.find(([broken]) => broken(command));
  if (rule !== undefined) throw refuse(urn, `declares ${shown(command.name)}, which ${rule[1]}`);
}

const shown = (name: string) => JSON.stringify(name.slice(0, 64));

function refuse(urn: string, what: string) {
  return contractInvalid(`the cluster ${shown(urn)} ${what}`, "mend the declaration");
}
