/**
 * `fanout`: what a durable channel costs, beside the bare broker, and beside other brokers where they are installed.
 *
 * Siblings: `fanout-copies.ts` writing, `fanout-whole.ts` the way to a member, `fanout-others.ts` the other brokers.
 */
import { copies } from "./fanout-copies.ts";
import { others } from "./fanout-others.ts";
import { type FanoutSizes, FANOUT_SIZES } from "./fanout-sizes.ts";
import { whole } from "./fanout-whole.ts";
import type { Report } from "./line.ts";

export async function fanout(report: Report, sizes: FanoutSizes = FANOUT_SIZES, env = process.env): Promise<void> {
  await copies(report, sizes);
  await whole(report, sizes);
  await others(report, sizes, env);
}
