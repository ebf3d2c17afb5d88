/** What a test run comes to: counts, and the one line that states them. */

export type Tally = { readonly passed: number; readonly failed: number; readonly skipped: number };

export const NOTHING: Tally = { passed: 0, failed: 0, skipped: 0 };

export function tallyLine({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

export function add(a: Tally, b: Tally): Tally {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

/** A run is good when something passed and nothing failed: a run of no test proves nothing. */
export function isGood({ passed, failed }: Tally): boolean {
  return passed > 0 && failed === 0;
}

/**
 * What the run comes to, given what the reporter wrote (undefined where vitest died before) and
 * how vitest ended. An end that the counts don't explain is a failure of its own.
 */
export function settle(reported: Tally | undefined, exitCode: number | null): Tally {
  const tally = reported ?? NOTHING;
  const explained = reported !== undefined && (exitCode === 0 || !isGood(tally));
  return explained ? tally : { ...tally, failed: tally.failed + 1 };
}

/** What a run came to, and the part of it that each file with a failure had. */
export type Reported = Tally & { readonly failing: readonly FailingFile[] };
export type FailingFile = { readonly file: string; readonly tally: Tally };

/** Reads the reporter's file; throws on anything else. */
export function parseReported(text: string): Reported {
  const value: unknown = JSON.parse(text);
  const tally = tallyOf(value);
  const failing: unknown = Reflect.get(Object(value), "failing");
  if (!Array.isArray(failing)) throw new Error('a tally without "failing"');
  return { ...tally, failing: failing.map(({ file, tally: own }) => ({ file: String(file), tally: tallyOf(own) })) };
}

function tallyOf(value: unknown): Tally {
  if (typeof value !== "object" || value === null) throw new Error("not a tally");
  const count = (name: string): number => {
    const found: unknown = Reflect.get(value, name);
    if (typeof found !== "number") throw new Error(`a tally without "${name}"`);
    return found;
  };
  return { passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
}
