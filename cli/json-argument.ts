/**
 * A JSON document from the command line: as it is, from a file (`@FILE`), or from standard input (`-`).
 *
 * Invariant: what it holds is never shown again; arguments may be nobody else's business.
 */
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { UsageError } from "./exit.ts";

const FROM_FILE = "@";
const FROM_INPUT = "-";

/** `undefined` where nothing was given: a command that takes nothing is called with nothing. */
export async function jsonArgument(option: string, given: string | undefined): Promise<unknown> {
  if (given === undefined) return undefined;
  const read = given === FROM_INPUT ? await text(process.stdin) : fileOr(given);
  try {
    return JSON.parse(read) as unknown;
  } catch {
    throw new UsageError(`what ${option} gives is no JSON`, {
      next: `quote it whole: ${option} '{"key":"value"}', or give ${option} @FILE, or ${option} - and pipe it in`,
    });
  }
}

function fileOr(given: string): string {
  return given.startsWith(FROM_FILE) ? readFileSync(given.slice(FROM_FILE.length), "utf8") : given;
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000 };

/** A span such as `500ms`, `15s`, `2m`, in milliseconds. */
export function span(name: string): (given: string) => number {
  return (given) => {
    const [, count, unit] = /^(\d{1,9})(ms|s|m)$/.exec(given) ?? [];
    const ms = Number(count) * (UNITS[unit ?? ""] ?? Number.NaN);
    if (ms >= 1) return ms;
    throw new UsageError(`${name} takes a time such as 500ms, 15s or 2m, not ${JSON.stringify(given)}`);
  };
}
