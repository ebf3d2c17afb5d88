/** What the `load` bench and its crowds say to each other. */
import type { SideName } from "./jobs.ts";
import type { Spread } from "./spread.ts";

/** The actor of an agent, by its number. */
export const actorOf = (agent: number): string => `load_${agent}`;

export type Crew = {
  readonly side: SideName;
  readonly url: string;
  /** One a member for ours; one that may do everything in its account for the bare side. */
  readonly creds: readonly string[];
  /** Its channel, for each agent of this process, */
  readonly channels: readonly string[];
  /** and to whom it writes directly, by number; the first of this process is `first`. */
  readonly peers: readonly number[];
  readonly first: number;
  /** Of ten sends, so many are posts to the channel; the others are direct messages. */
  readonly posts: number;
  readonly textBytes: number;
  /** Of the bare side: its stream, whose subjects are `<stream>.<channel>`. */
  readonly stream: string;
};

export type Told =
  | { readonly kind: "open"; readonly crew: Crew }
  | { readonly kind: "run"; readonly seconds: number }
  | { readonly kind: "close" };

/** What came of a run, in milliseconds and counts. */
export type Shift = {
  readonly posted: number;
  readonly written: number;
  readonly failed: number;
  /** What each agent was shown. */
  readonly received: readonly number[];
  /** From a send to its receipt. */
  readonly receipt: Spread;
  /** From a send to each reader. */
  readonly shown: Spread;
};
