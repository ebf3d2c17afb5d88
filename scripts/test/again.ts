/**
 * A second run of the few files that failed, each alone: it tells a fault of the project from a machine that
 * was too busy for one deadline among thousands, or stood still for some seconds.
 *
 * Invariants
 * 1. What failed twice has failed. What passed the second time is counted, and named at the end of the output.
 * 2. Many failing files are no coincidence: they are not run again.
 */
import { type FailingFile, type Reported, type Tally, add, isGood } from "./tally.ts";

/** A machine that stands still hits what each of three workers runs then, and what each begins after it. */
const MOST_FILES = 6;

/** The files to run again; none where every failure is not one of theirs. */
export function runAgain({ failed, failing }: Reported): readonly FailingFile[] {
  const theirs = failing.reduce((sum, { tally }) => sum + tally.failed, 0);
  return theirs === failed && failing.length <= MOST_FILES ? failing : [];
}

/** What both runs come to: the second stands for that file's first if it is good. */
export function afterSecond(whole: Tally, first: Tally, second: Tally): Tally {
  if (!isGood(second)) return whole;
  const without = { passed: -first.passed, failed: -first.failed, skipped: -first.skipped };
  return add(add(whole, without), second);
}
