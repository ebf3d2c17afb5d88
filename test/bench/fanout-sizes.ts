/** How much the `fanout` bench does: the figures, and for a test a little of each. */
export type FanoutSizes = {
  /** Rounds that each median is taken over. */
  readonly rounds: number;
  /** Copies that one round writes. */
  readonly copies: number;
  /** Members of one channel. */
  readonly members: readonly number[];
  /** Channels with ten members each. */
  readonly channels: readonly number[];
  /** Posts whose way is timed. */
  readonly latency: number;
  /** Messages that a member was away for. */
  readonly away: number;
  /** How often it comes back: it takes seconds, in which a machine changes. */
  readonly returns: number;
  /** Copies that wait when the memory of the delivery service is read, in growing order. */
  readonly backlog: readonly number[];
};

export const FANOUT_SIZES: FanoutSizes = {
  rounds: 3,
  copies: 60_000,
  members: [10, 100, 1000],
  channels: [1, 10, 100, 1000],
  latency: 300,
  away: 100_000,
  returns: 7,
  backlog: [100_000, 1_000_000],
};

export const BENCH = "fanout";
/** Of each post. */
export const TEXT = "x".repeat(64);
/** What other brokers carry: as long as a post of that text is. */
export const BODY = Buffer.from("x".repeat(220));
/** Publishes without an answer yet, on every side. */
export const IN_FLIGHT = 256;
