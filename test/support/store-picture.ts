/**
 * A picture of everything that a space stores: every stream, its settings, its messages by sequence, its
 * consumers and how far they are. What an attack moved shows as a difference of two pictures. What the daemons
 * write by themselves, whole and in its place, is left out: the leases that they renew, the markers of
 * member groups, the feed of who hears which channel.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type Entry, api, dump } from "./raw-jetstream.ts";

export type StreamPicture = {
  readonly config: unknown;
  readonly entries: readonly Entry[];
  readonly consumers: readonly {
    readonly name: string;
    readonly config: unknown;
    readonly ackFloor: number;
    readonly delivered: number;
  }[];
};
export type Picture = ReadonlyMap<string, StreamPicture>;

type ConsumerAnswer = {
  readonly name: string;
  readonly config: unknown;
  readonly ack_floor: { readonly stream_seq: number };
  readonly delivered: { readonly consumer_seq: number };
};

export async function pictureOf(store: NatsConnection): Promise<Picture> {
  const names = (await api(store, "STREAM.NAMES"))["streams"] as string[];
  const pictures = await Promise.all(
    names.toSorted().map(async (name): Promise<[string, StreamPicture]> => {
      const info = await api(store, `STREAM.INFO.${name}`);
      const list = (await api(store, `CONSUMER.LIST.${name}`))["consumers"] as ConsumerAnswer[] | undefined;
      const consumers = (list ?? [])
        .map((one) => ({
          name: one.name,
          config: one.config,
          ackFloor: one.ack_floor.stream_seq,
          delivered: one.delivered.consumer_seq,
        }))
        .toSorted((a, b) => (a.name < b.name ? -1 : 1));
      return [
        name,
        { config: info["config"], entries: (await dump(store, name)).filter((entry) => !isRoutine(entry)), consumers },
      ];
    }),
  );
  return new Map(pictures);
}

const ROUTINES: readonly (readonly [RegExp, readonly string[]])[] = [
  [
    /^\$KV\.cotal_leases_[^.]+\.lease\.(?:delivery|provisioner)\./,
    ["at", "epoch", "holder", "principal", "ready", "v"],
  ],
  [/^\$KV\.cotal_membership_[^.]+\.=view$/, ["at", "by", "gap", "v"]],
  [/^\$KV\.cotal_membership_[^.]+\.[^.]+\.[^.]+$/, ["durable", "live", "observedAt", "omitted"]],
  [/^cotal\.[^.]+\.dlvpos\.\d+$/, ["acl", "by", "of", "sequence", "v"]],
];

/** Whatever an attack puts there has other bytes, or brings a header of the broker's along. */
function isRoutine({ subject, data, hdrs }: Entry): boolean {
  const fields = ROUTINES.find(([at]) => at.test(subject))?.[1];
  if (fields === undefined || /Nats-(?:Stream|Subject|Sequence)/i.test(hdrs)) return false;
  // A lease that was given back.
  if (data === "") return /KV-Operation/i.test(hdrs);
  try {
    return text(Object.keys(JSON.parse(data) as object).toSorted()) === text(fields);
  } catch {
    return false;
  }
}

export type Difference = {
  /** Messages that are new, with their stream. */
  readonly added: readonly (Entry & { readonly stream: string })[];
  /** Messages that are gone or changed. */
  readonly lost: readonly (Entry & { readonly stream: string })[];
  /** Streams, settings and consumers that differ. */
  readonly moved: readonly string[];
};

export function difference(before: Picture, after: Picture): Difference {
  const added: (Entry & { stream: string })[] = [];
  const lost: (Entry & { stream: string })[] = [];
  const moved: string[] = [];
  for (const stream of new Set([...before.keys(), ...after.keys()])) {
    const [was, is] = [before.get(stream), after.get(stream)];
    if (was === undefined || is === undefined) {
      moved.push(`stream ${stream} ${was === undefined ? "came" : "went"}`);
      continue;
    }
    const [old, now] = [
      new Map(was.entries.map((entry) => [entry.seq, entry])),
      new Map(is.entries.map((entry) => [entry.seq, entry])),
    ];
    for (const entry of is.entries) if (text(old.get(entry.seq)) !== text(entry)) added.push({ stream, ...entry });
    for (const entry of was.entries) if (text(now.get(entry.seq)) !== text(entry)) lost.push({ stream, ...entry });
    if (text(was.config) !== text(is.config)) moved.push(`settings of ${stream}`);
    const consumers = new Map(was.consumers.map((one) => [one.name, one]));
    for (const one of is.consumers) {
      if (text(consumers.get(one.name)) !== text(one)) moved.push(`consumer ${one.name} of ${stream}`);
      consumers.delete(one.name);
    }
    for (const name of consumers.keys()) moved.push(`consumer ${name} of ${stream} went`);
  }
  return { added, lost, moved };
}

const text = (value: unknown): string => JSON.stringify(value) ?? "";
