/** docs/test-long.md: what the last complete long run came to, checked in so that readers see it. */
import { execFileSync } from "node:child_process";
import { type Tally, tallyLine } from "./tally.ts";

export const LONG_REPORT = "docs/test-long.md";

export type LongRun = {
  readonly commit: string;
  readonly date: Date;
  readonly seconds: number;
  readonly tally: Tally;
};

export function longReport({ commit, date, seconds, tally }: LongRun): string {
  const rows = [
    ["commit", commit],
    ["date", date.toISOString()],
    ["result", tallyLine(tally)],
    ["duration", `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`],
  ];
  return [
    "# The last long test run",
    "",
    "Written by `npm run test:long`; not by hand.",
    "",
    "| what | value |",
    "| --- | --- |",
    ...rows.map(([what, value]) => `| ${what} | ${value} |`),
    "",
  ].join("\n");
}

/** The commit that was tested, and whether more than that was tested. */
export function testedCommit(root: string): string {
  const git = (...args: string[]): string => execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();
  try {
    const changed = git("status", "--porcelain", "--", ".", `:!${LONG_REPORT}`) !== "";
    return `${git("rev-parse", "HEAD")}${changed ? " with changes" : ""}`;
  } catch {
    return "none"; // not a repository, or no commit yet
  }
}
