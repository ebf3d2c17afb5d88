/**
 * `live`: what a conversation costs through the SDK, beside nats.js alone on the same broker.
 *
 * Server, provisioner, sender and receiver are processes of their own and share the machine.
 */
import { DEFAULT_LIMITS } from "../../shared/client/index.ts";
import { type Metric, type Report, benchLine, percentile } from "./line.ts";
import type { SideName } from "./jobs.ts";
import { type Both, inTurn } from "./rounds.ts";
import { type World, openWorld } from "./world.ts";

export type LiveSizes = {
  readonly rounds: number;
  readonly latency: number;
  readonly latencyRounds: number;
  readonly publish: number;
  readonly inbox: number;
  readonly history: number;
  readonly members: number;
  readonly rosterRounds: number;
};

export const LIVE_SIZES: LiveSizes = {
  rounds: 7,
  latency: 300,
  latencyRounds: 15,
  publish: 15_000,
  inbox: 25_000,
  history: 5000,
  members: 1000,
  rosterRounds: 15,
};

const BENCH = "live";
const IN_FLIGHT = 256;
/** Most single pulls that the SDK has out. */
const PULLS = DEFAULT_LIMITS.pulls;
/** Between two messages of the latency rounds. */
const PAUSE_MS = 1;
const WARM_UP = 10;

const LATENCY_NOTE = "bare: stored and acknowledged too; 0.08 ms on a machine at rest, more beside other work";
const METRICS = {
  p50: { metric: "latency_p50", unit: "ms", aim: "<= 1.25", note: LATENCY_NOTE },
  p99: { metric: "latency_p99", unit: "ms" },
  publish: {
    metric: "publish_rate",
    unit: "1/s",
    aim: ">= 0.65",
    note: "bare: js.publish inside one account; a message id and as many bytes cost it about a tenth",
  },
  inbox: {
    metric: "inbox_rate",
    unit: "1/s",
    aim: ">= 0.90",
    note: "bare: single pulls, 32 outstanding, acknowledged",
  },
  history: { metric: "history_rate", unit: "1/s", note: "bare: batched direct gets in the store; ours: mediated" },
  roster: { metric: "roster_ms", unit: "ms", note: "bare: one batched direct get in the store; ours: mediated" },
} as const satisfies Record<string, Metric>;

export async function live(report: Report, sizes: LiveSizes = LIVE_SIZES): Promise<void> {
  const world = await openWorld();
  try {
    await latency(world, sizes, report);
    for (const [about, measure] of rates(world, sizes)) {
      const rounds = about === METRICS.roster ? sizes.rosterRounds : sizes.rounds;
      tell(
        report,
        about,
        await inTurn(
          rounds,
          () => measure("ours"),
          () => measure("bare"),
        ),
      );
    }
  } finally {
    await world.close();
  }
}

async function latency({ sides }: World, sizes: LiveSizes, report: Report): Promise<void> {
  const measure = async (side: SideName, count: number, pauseMs: number): Promise<number[]> => {
    const { sender, receiver } = sides[side];
    const [taken] = await Promise.all([receiver.run("receive", { count }), sender.run("pace", { count, pauseMs })]);
    return taken;
  };
  const { latency: count, latencyRounds } = sizes;
  // Warm first: a conversation of an hour isn't made of code that runs for the first time.
  for (const side of ["ours", "bare"] as const) await measure(side, WARM_UP * count, 0);
  const round = (side: SideName) => () => measure(side, count, PAUSE_MS);
  const { ours, bare } = await inTurn(latencyRounds, round("ours"), round("bare"));
  const shares = [
    [METRICS.p50, 0.5],
    [METRICS.p99, 0.99],
  ] as const;
  for (const [about, share] of shares) {
    const at = (taken: readonly number[]): number => percentile(taken, share);
    tell(report, about, { ours: ours.map(at), bare: bare.map(at) });
  }
}

type Measure = (side: SideName) => Promise<number>;

function rates(world: World, sizes: LiveSizes): readonly (readonly [Metric, Measure])[] {
  const { sides, past } = world;
  let isFilled = false;
  return [
    [METRICS.publish, (side) => sides[side].sender.run("flood", { count: sizes.publish, inFlight: IN_FLIGHT })],
    [
      METRICS.inbox,
      async (side) => {
        await world.fillInbox(side, sizes.inbox);
        return sides[side].receiver.run("drain", { count: sizes.inbox, pulls: PULLS });
      },
    ],
    [
      METRICS.history,
      async (side) => {
        if (!isFilled) await world.fillPast(sizes.history);
        isFilled = true;
        return sides[side].receiver.run("history", { channel: past, count: sizes.history });
      },
    ],
    [
      METRICS.roster,
      async (side) => {
        // Records live for six seconds (§6).
        await world.fillRoster(sizes.members);
        return sides[side].receiver.run("roster", { members: sizes.members });
      },
    ],
  ];
}

function tell(report: Report, about: Metric, { ours, bare }: Both<number>): void {
  report(benchLine(BENCH, about, ours, bare), about);
}
