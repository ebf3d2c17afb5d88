/**
 * Configuration as data: a table of settings, read once at the start.
 *
 * Option beats environment beats default; without any of them a setting is refused unless its schema
 * admits `undefined`. The same table writes `docs/configuration.md`.
 *
 * Invariants
 * 1. An empty variable is an unset one.
 * 2. Every problem is reported at once, with the variable, what was expected and an example.
 * 3. No problem repeats a value: a variable may hold a secret by mistake.
 * 4. A secret is named by the path of its file and never held here (see `secrets.ts`).
 */
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { inspectSecret } from "./secrets.ts";

export type VariableName = `COTAL_${string}`;

export type Setting<T> = {
  readonly env: VariableName;
  /** Takes the variable's text as well as the value itself; `settings.ts` has the usual ones. */
  readonly schema: z.ZodType<T>;
  readonly default?: T;
  /** One or two sentences for the reader of the documentation. */
  readonly doc: string;
  /** A text that would be accepted. */
  readonly example: string;
  /** The value is the path of a file that holds a secret; the file is checked at the start. */
  readonly secretFile?: true;
};

/** Keeps the type of one setting, and checks its default against its schema's type. */
export function setting<T>(of: Omit<Setting<T>, "default"> & { readonly default?: NoInfer<T> }): Setting<T> {
  return of;
}

export type Settings = Readonly<Record<string, Setting<unknown>>>;
export type SettingValues<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

export type ConfigSource<V> = {
  /** What the caller chose (a flag of the CLI, a test). `undefined` is not chosen. */
  readonly options?: { readonly [K in keyof V]?: V[K] | undefined };
  readonly env: Readonly<Record<string, string | undefined>>;
};

export type Config<V> = {
  /** Variables that begin so belong to this daemon alone. */
  readonly prefix: VariableName;
  readonly settings: Settings;
  /** Throws one `bad-request` that names every problem. Warnings are for the log. */
  readonly read: (source: ConfigSource<V>) => { readonly values: V; readonly warnings: readonly string[] };
};

/** One problem of a configuration, also as `details` of the error. */
const CONFIG_PROBLEM = "ai.cotal.config.problem";

export function defineConfig<const S extends Settings>(prefix: VariableName, settings: S): Config<SettingValues<S>> {
  const names = Object.values(settings).map(({ env }) => env);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) throw new CotalError(ErrorCode.Internal, `two settings read ${twice}`);

  return {
    prefix,
    settings,
    read: ({ options = {}, env }) => {
      const problems: Problem[] = [];
      const warnings: string[] = [];
      const values: Record<string, unknown> = {};
      for (const [key, one] of Object.entries(settings)) {
        const given = chosen(one, Reflect.get(options, key), env[one.env]);
        const parsed = one.schema.safeParse(given);
        if (!parsed.success) {
          const wrong = given === undefined ? "is required" : expectation(parsed.error);
          problems.push({ variable: one.env, wrong, example: one.example });
          continue;
        }
        values[key] = parsed.data;
        if (one.secretFile === true && typeof parsed.data === "string") {
          const secret = inspectSecret(parsed.data);
          if (!secret.ok) {
            problems.push({ variable: one.env, wrong: `the file that it names ${secret.why}`, example: one.example });
          } else if (secret.warning !== undefined) {
            warnings.push(`the file that ${one.env} names ${secret.warning}`);
          }
        }
      }
      if (problems.length > 0) throw refusal(problems);
      for (const name of Object.keys(env)) {
        if (name.startsWith(prefix) && !names.some((known) => known === name)) {
          warnings.push(`${name} is set, but there is no such setting; docs/configuration.md lists them`);
        }
      }
      // Every key of S has just been filled from its own schema.
      return { values: values as SettingValues<S>, warnings };
    },
  };
}

type Problem = { readonly variable: string; readonly wrong: string; readonly example: string };

function chosen(one: Setting<unknown>, option: unknown, variable: string | undefined): unknown {
  if (option !== undefined) return option;
  if (variable !== undefined && variable !== "") return variable;
  return one.default;
}

function expectation(error: z.ZodError): string {
  return error.issues
    .map(({ path, message }) => (path.length === 0 ? message : `${path.join(".")}: ${message}`))
    .join("; ");
}

function refusal(problems: readonly Problem[]): CotalError {
  const lines = problems.map((one) => `${one.variable}: ${one.wrong} (for example ${one.variable}=${one.example})`);
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  return new CotalError(ErrorCode.BadRequest, `the configuration has ${count}: ${lines.join("; ")}`, {
    outcome: Outcome.NotExecuted,
    next: "set the named variables and start again; docs/configuration.md explains each",
    details: problems.map((one) => ({ kind: CONFIG_PROBLEM, ...one })),
  });
}

/** One row of `docs/configuration.md`. */
export type ConfigRow = {
  readonly name: string;
  /** As text; `required`, or `unset` for a setting that may stay so. */
  readonly default: string;
  readonly meaning: string;
  readonly example: string;
};

/** The settings of a daemon as rows, in the order of their definition. */
export function describeConfig(config: Pick<Config<unknown>, "settings">): readonly ConfigRow[] {
  return Object.values(config.settings).map((one) => ({
    name: one.env,
    default: defaultText(one),
    meaning: one.secretFile === true ? `${one.doc} The path of a file that holds the secret.` : one.doc,
    example: one.example,
  }));
}

function defaultText(one: Setting<unknown>): string {
  if (one.default === undefined) return one.schema.safeParse(undefined).success ? "unset" : "required";
  if (Array.isArray(one.default)) return one.default.join(",");
  return typeof one.default === "string" ? one.default : JSON.stringify(one.default);
}
