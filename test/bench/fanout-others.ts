/**
 * The `fanout` bench of other brokers, where they are installed: the same copies to the same number of receivers, in
 * the same run. Of RabbitMQ's two queue versions each has its figures, and the better of them stands under its name.
 */
import { BENCH, type FanoutSizes } from "./fanout-sizes.ts";
import { type BenchLine, type Metric, type Report, benchLine, percentile } from "./line.ts";
import { startMosquitto } from "./mosquitto.ts";
import { type OtherBroker, findProgram } from "./other-broker.ts";
import { startRabbitmq } from "./rabbitmq.ts";

/** Of the receivers whose copies a kill may cost. */
const FEW = 10;

export async function others(report: Report, sizes: FanoutSizes, env: NodeJS.ProcessEnv): Promise<void> {
  const rabbitmq = findProgram("rabbitmq-server", env);
  if (rabbitmq !== undefined) {
    const lines: (readonly [BenchLine, Metric])[] = [];
    const keep: Report = (line, about) => {
      lines.push([line, about]);
      report(line, about);
    };
    for (const version of [1, 2] as const) await measure(await startRabbitmq(rabbitmq, version, env), keep, sizes);
    for (const [line, about] of better(lines)) report(line, about);
  }
  const mosquitto = findProgram("mosquitto", env);
  if (mosquitto !== undefined) await measure(await startMosquitto(mosquitto), report, sizes);
}

async function measure(broker: OtherBroker, report: Report, sizes: FanoutSizes): Promise<void> {
  const tell = (metric: string, unit: string, values: readonly number[], note?: string): void => {
    const about = { metric: `peer_${broker.name}_${metric}`, unit, ...(note === undefined ? {} : { note }) };
    report(benchLine(BENCH, about, values), about);
  };
  const rounds = async (run: () => Promise<number>): Promise<number[]> => {
    await run();
    const taken: number[] = [];
    for (let round = 0; round < sizes.rounds; round += 1) taken.push(await run());
    return taken;
  };
  try {
    for (const count of sizes.members) {
      const posts = Math.max(1, Math.floor(sizes.copies / count));
      await broker.receivers(count);
      const rates = await rounds(async () => {
        const began = performance.now();
        await broker.flood(posts);
        const rate = (posts * count * 1000) / (performance.now() - began);
        await broker.empty();
        return rate;
      });
      await broker.forget();
      tell(`copies_rate_${count}`, "1/s", rates, "receivers that are away; until each post is confirmed");
    }
    await broker.receivers(1);
    const trips: number[][] = [];
    for (let round = 0; round <= sizes.rounds; round += 1) trips.push(await broker.latency(sizes.latency));
    const warm = trips.slice(1);
    tell(
      "inbox_p50",
      "ms",
      warm.map((taken) => percentile(taken, 0.5)),
    );
    tell(
      "inbox_p99",
      "ms",
      warm.map((taken) => percentile(taken, 0.99)),
    );
    const caught = await rounds(async () => {
      await broker.flood(sizes.away);
      return (sizes.away * 1000) / (await broker.catchUp(sizes.away));
    });
    tell("catchup_rate", "1/s", caught);
    await broker.forget();
    const posts = Math.max(1, Math.floor(sizes.copies / FEW));
    await broker.receivers(FEW);
    await broker.flood(posts);
    const left = await broker.afterKill();
    tell("lost_on_kill", "%", [100 * (1 - left / (posts * FEW))], "of the confirmed, by a kill -9 of the broker");
  } finally {
    await broker.stop();
  }
}

/** Of both queue versions, under the name of the broker. */
function better(lines: readonly (readonly [BenchLine, Metric])[]): (readonly [BenchLine, Metric])[] {
  const best = new Map<string, readonly [BenchLine, Metric]>();
  for (const [line, about] of lines) {
    const metric = line.metric.replace(/_v\d_/, "_");
    const known = best.get(metric)?.[0];
    const isBetter = known === undefined || (line.unit === "1/s" ? line.value > known.value : line.value < known.value);
    if (isBetter)
      best.set(metric, [
        { ...line, metric },
        { ...about, metric, note: `of ${line.metric}` },
      ]);
  }
  return [...best.values()];
}
