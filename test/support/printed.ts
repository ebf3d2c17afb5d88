/**
 * What the processes of the tests print, and what they must never print, kept until the run is over:
 * scripts/test.ts looks through all of it (scripts/test/secrets.ts). Outside of `npm test` nothing is kept.
 */
import { appendFileSync, existsSync, readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { KNOWN, PRINTED_FOLDER, digestOf } from "../../scripts/test/secrets.ts";

const folder = process.env[PRINTED_FOLDER];
/** One file for each test process: they are forked for each test file. */
const own = `${process.pid}`;

export type Keep = (ending: string, lines: string) => void;

/** Keeps lines of what is no output, in a file of this ending; `undefined` where nothing is kept. */
export const kept: Keep | undefined =
  folder === undefined ? undefined : (ending, lines) => appendFileSync(join(folder, `${own}${ending}`), lines);

/** Keeps a piece of a process's output. `by` says whose, for a finding. */
export function printed(by: string, text: string): void {
  if (folder !== undefined && text !== "") appendFileSync(join(folder, `${own}-${by}.txt`), text);
}

/** Makes a text one that nothing may print. Only its digest is kept. */
function neverPrinted(...secrets: readonly string[]): void {
  if (folder === undefined) return;
  const lines = secrets.filter((secret) => secret.length >= 20).map((secret) => `${digestOf(secret)}\n`);
  if (lines.length > 0) appendFileSync(join(folder, `${own}${KNOWN}`), lines.join(""));
}

/** The logs of a state folder as output, and its secrets as what nothing may print. Before it is removed. */
export function keepState(state: string): void {
  if (folder === undefined || !existsSync(state)) return;
  for (const entry of readdirSync(state, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    // A broker's own stores hold messages, not logs.
    if (path.includes("/jetstream/") || path.includes("/store/")) continue;
    if (entry.name.endsWith(".log")) printed(basename(entry.name, ".log"), readFileSync(path, "utf8"));
    else neverPrinted(...secretsIn(entry.name, readFileSync(path, "utf8")));
  }
}

/** Members of JSON files that are secrets. */
const SECRET_MEMBERS: ReadonlySet<string> = new Set(["d", "capability", "refreshToken", "idToken", "secret"]);

function secretsIn(name: string, text: string): string[] {
  if (name.endsWith(".secret") || name.endsWith(".nk")) return [text.trim()];
  if (!/\.(?:json|jwk)$/.test(name)) return [];
  const found: string[] = [];
  try {
    JSON.parse(text, (key, value: unknown) => {
      if (SECRET_MEMBERS.has(key) && typeof value === "string") found.push(value);
      return value;
    });
  } catch {
    // Half a file of a process that was killed: a test's own business.
  }
  return found;
}
