/**
 * What a peer of the `live` bench can be told to do. Both sides do the same jobs: `ours.ts` through
 * the SDK, `bare.ts` with nats.js alone.
 */

export type SideName = "ours" | "bare";

export type Setup = {
  readonly url: string;
  readonly space: string;
  /** Text of an agent's credential file: both sides connect to front with the same permissions. */
  readonly creds: string;
  /** Of a user of the store account: for what the bare side does inside one account. */
  readonly storeCreds: string;
  /** What the receiver has joined. */
  readonly channel: string;
  /** What nobody has joined: a flood is about storing. */
  readonly quietChannel: string;
  /** Messages are this long. */
  readonly textBytes: number;
  /** What the SDK's message of such a text takes on the wire; bare messages are as long. */
  readonly wireBytes: number;
  /** The bare side's own stream in the store account, made like CHAT, and its subject. */
  readonly plainSubject: string;
};

export type Jobs = {
  /** Sends so many, each stored before the next goes out, with a pause between. */
  readonly pace: (order: { readonly count: number; readonly pauseMs: number }) => Promise<void>;
  /** Takes so many of them; milliseconds from send to reader, each. */
  readonly receive: (order: { readonly count: number }) => Promise<number[]>;
  /** Sends so many, with so many unconfirmed at once; how many a second were stored. */
  readonly flood: (order: { readonly count: number; readonly inFlight: number }) => Promise<number>;
  /** Empties a direct-message inbox, each acknowledged; how many a second. */
  readonly drain: (order: { readonly count: number; readonly pulls: number }) => Promise<number>;
  /** Reads a channel's history; how many a second. */
  readonly history: (order: { readonly channel: string; readonly count: number }) => Promise<number>;
  /** Reads the roster; milliseconds. */
  readonly roster: (order: { readonly members: number }) => Promise<number>;
  readonly close: (order: object) => Promise<void>;
};

export type JobName = keyof Jobs;
export type OrderOf<Name extends JobName> = Parameters<Jobs[Name]>[0];
export type ResultOf<Name extends JobName> = Awaited<ReturnType<Jobs[Name]>>;

/** What goes down to a peer. */
export type Told =
  | { readonly kind: "setup"; readonly side: SideName; readonly setup: Setup }
  | { readonly kind: "job"; readonly name: JobName; readonly order: unknown };

/** The moment of sending leads the text: the monotonic clock is one for all processes of a machine. */
export const stamp = (): string => process.hrtime.bigint().toString().padStart(20, "0");
export const STAMP_LENGTH = 20;

/** Milliseconds since a stamp. */
export function sinceStamp(text: string): number {
  return Number(process.hrtime.bigint() - BigInt(text.slice(0, STAMP_LENGTH))) / 1e6;
}

export const perSecond = (count: number, beganAt: number): number => (count * 1000) / (performance.now() - beganAt);

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** Runs `count` tasks, `inFlight` at once. */
export async function pipelined(count: number, inFlight: number, task: (n: number) => Promise<unknown>): Promise<void> {
  let started = 0;
  const worker = async (): Promise<void> => {
    while (started < count) {
      started += 1;
      await task(started);
    }
  };
  await Promise.all(Array.from({ length: Math.min(inFlight, count) }, worker));
}

/** A side that got fewer than it should has measured something else. */
export function complete(what: string, got: number, wanted: number): void {
  if (got !== wanted) throw new Error(`${what}: ${got} came, and ${wanted} were there`);
}
