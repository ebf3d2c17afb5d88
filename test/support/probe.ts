/**
 * Asks a live broker what it refuses: many publishes and subscriptions over one connection, judged
 * by what the broker says of each before it answers the ping that follows.
 *
 * The refusal of a publish or a subscription is sent on the same socket ahead of that answer, so no
 * probe waits for a timeout, and silence means "accepted".
 */
import { setImmediate as turn } from "node:timers/promises";
import { type Msg, type NatsConnection, PermissionViolationError, headers } from "@nats-io/transport-node";

export type Probe =
  | {
      readonly op: "pub";
      readonly subject: string;
      readonly data?: string | Uint8Array;
      readonly reply?: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  | { readonly op: "sub"; readonly subject: string; readonly queue?: string };

export type Prober = {
  readonly nc: NatsConnection;
  /** The probes that were refused, in the order given. */
  readonly refused: (probes: readonly Probe[]) => Promise<Probe[]>;
  readonly isRefused: (probe: Probe) => Promise<boolean>;
  /** Waits until the broker has answered everything sent so far. */
  readonly settle: () => Promise<void>;
};

export function createProber(nc: NatsConnection): Prober {
  const said = new Set<string>();
  const watch = async (): Promise<void> => {
    for await (const status of nc.status()) {
      if (status.type !== "error" || !(status.error instanceof PermissionViolationError)) continue;
      const { operation, subject, queue } = status.error;
      said.add(key(operation === "publish" ? "pub" : "sub", subject, queue));
    }
  };
  void watch();

  const settle = async (): Promise<void> => {
    await nc.flush();
    // The status events of what came before the answer are read on the next turns of the loop.
    await turn();
    await turn();
  };
  const refused = async (probes: readonly Probe[]): Promise<Probe[]> => {
    said.clear();
    const subscriptions = probes.map((probe) => send(nc, probe));
    await settle();
    const found = probes.filter((probe) =>
      said.has(key(probe.op, probe.subject, probe.op === "sub" ? probe.queue : undefined)),
    );
    for (const subscription of subscriptions) subscription?.unsubscribe();
    await nc.flush();
    return found;
  };
  return { nc, refused, isRefused: async (probe) => (await refused([probe])).length === 1, settle };
}

function send(nc: NatsConnection, probe: Probe) {
  if (probe.op === "sub") {
    return nc.subscribe(probe.subject, {
      callback: () => undefined,
      ...(probe.queue === undefined ? {} : { queue: probe.queue }),
    });
  }
  nc.publish(probe.subject, probe.data ?? "", publishOptions(probe));
  return undefined;
}

export function publishOptions(probe: {
  readonly reply?: string;
  readonly headers?: Readonly<Record<string, string>>;
}) {
  return {
    ...(probe.reply === undefined ? {} : { reply: probe.reply }),
    ...(probe.headers === undefined ? {} : { headers: headerBlock(probe.headers) }),
  };
}

export function headerBlock(entries: Readonly<Record<string, string>>) {
  const block = headers();
  for (const [name, value] of Object.entries(entries)) block.set(name, value);
  return block;
}

function key(op: "pub" | "sub", subject: string, queue: string | undefined): string {
  return JSON.stringify([op, subject, queue ?? null]);
}

/** Everything that reaches a subscription, and when the broker has answered it. */
export type Tap = { readonly messages: Msg[]; readonly subjects: () => string[]; readonly stop: () => void };

/** Subscribes and keeps what comes; the broker has taken the subscription when this resolves. */
export async function tap(nc: NatsConnection, subject: string, queue?: string): Promise<Tap> {
  const messages: Msg[] = [];
  const subscription = nc.subscribe(subject, {
    ...(queue === undefined ? {} : { queue }),
    callback: (error, message) => {
      if (error === null) messages.push(message);
    },
  });
  await nc.flush();
  return {
    messages,
    subjects: () => messages.map((message) => message.subject),
    stop: () => subscription.unsubscribe(),
  };
}
