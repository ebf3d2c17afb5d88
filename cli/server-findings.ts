/**
 * What `cotal doctor` says of the broker's servers, each by its name (supplement H): a version below the floor, limits
 * that the contract needs, a disk that fills, and a server that has not shown itself.
 */
import { z } from "zod";
import { assertFloor } from "../shared/broker/floor.ts";
import { type ServerLimits, limitFaults } from "../shared/grants/gates.ts";
import { CotalError } from "../shared/protocol/base/errors.ts";
import type { Finding } from "../shared/protocol/endpoint/provisioner-shapes.ts";

const Servers = z.looseObject({
  servers: z.array(
    z.looseObject({
      name: z.string(),
      version: z.string(),
      maxControlLine: z.number(),
      maxPayload: z.number(),
      loginSeconds: z.number(),
      store: z.looseObject({ used: z.number(), most: z.number(), syncSeconds: z.number() }).optional(),
    }),
  ),
  gap: z.string().optional(),
});
type ServerStore = NonNullable<z.infer<typeof Servers>["servers"][number]["store"]>;

/** `answer`: what the trust program has heard from every server; throws where that is of another shape. */
export function serverFindings(answer: unknown): Finding[] {
  const { servers, gap } = Servers.parse(answer);
  const each = servers.flatMap(({ name, version, store, ...limits }) => [
    ...floor(name, version),
    ...diskOf(name, store),
    ...lateOf(name, store),
    ...unfit(name, limits),
  ]);
  return gap === undefined ? each : [unseen(gap), ...each];
}

const unseen = (gap: string): Finding => ({
  check: "broker servers",
  level: "error",
  message: `not every server has shown its limits: ${gap}`,
  next: "bring every server of the cluster back; one that crashed is counted for up to four minutes",
});

function unfit(name: string, limits: ServerLimits): Finding[] {
  return limitFaults(limits).map(({ what, set }) => ({
    check: "broker limits",
    level: "error",
    message: `server ${name}: ${what}`,
    next: `set ${set} in that server's configuration and reload it`,
  }));
}

const FILLING = 0.8;
const FULL = 0.95;

/** A store that is full refuses every message of every space. */
function diskOf(name: string, store: ServerStore | undefined): Finding[] {
  if (store === undefined || store.most <= 0 || store.used < store.most * FILLING) return [];
  return [
    {
      check: "broker disk",
      level: store.used < store.most * FULL ? "warning" : "error",
      message: `server ${name} has ${Math.floor((store.used / store.most) * 100)} % of the ${store.most} bytes that it may store`,
      next: "give it more (jetstream max_file_store, and the disk for it), or keep less history: cotal limits set",
    },
  ];
}

/** Beyond that a power cut takes more than a moment of what was acknowledged. */
const MOST_SYNC_SECONDS = 10;

function lateOf(name: string, store: ServerStore | undefined): Finding[] {
  if (store === undefined || store.syncSeconds <= MOST_SYNC_SECONDS) return [];
  return [
    {
      check: "broker disk",
      level: "warning",
      message: `a power cut takes what server ${name} has acknowledged in the last ${store.syncSeconds} s`,
      next: 'set sync_interval: "1s" in the jetstream block of its configuration, and start it again',
    },
  ];
}

function floor(name: string, version: string): Finding[] {
  try {
    assertFloor(version);
    return [];
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    const { message, next } = thrown;
    return [
      { check: "broker version", level: "error", message: `server ${name}: ${message}`, next: next ?? "upgrade it" },
    ];
  }
}
