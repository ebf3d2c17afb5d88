/**
 * The one door of every durable write: a create, a compare-and-set, or an append.
 *
 * Invariants
 * 1. A create and a compare-and-set always carry their expectation; nothing here overwrites unseen.
 * 2. Every write names the stream it means, so a foreign capture refuses it before it is stored, and
 *    the ack must name that stream too.
 * 3. The outcome is honest: a refusal ran nothing; silence is `unavailable` with outcome unknown, and
 *    the caller reads before he tries again.
 * 4. The writes of one operation are numbered from 1, so that a test can end the process before or
 *    after the n-th (`test/support/crash.ts`). A writer that died writes nothing any more.
 */
import { type MsgHdrs, type NatsConnection, TimeoutError, headers } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { Header } from "../protocol/base/headers.ts";
import { type Json, numberIn, parseAnswer } from "./api.ts";
import { fromNats } from "./errors.ts";
import { request } from "./requests.ts";

/** Tests only: where an operation ends as a killed process would. */
export type Death = {
  /** Number of the write, from 1. */
  readonly at: number;
  readonly when: "before" | "after";
  /** Ends the process itself, in a test that runs one; thrown as `Died` if left out. */
  readonly kill?: () => void;
};

/** What a writer throws when it dies. Never caught by anything but a test. */
export class Died extends Error {
  override readonly name = "Died";
  constructor(death: Death) {
    super(`died ${death.when} write ${death.at}`);
  }
}

export type WriteOptions = {
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
};

export type Writer = {
  /** Writes a subject that has, and had, nothing. Over a delete marker: `cas` on its sequence. */
  readonly create: (stream: string, subject: string, data: Uint8Array, options?: WriteOptions) => Promise<number>;
  /** Writes over the message read at `expectedSeq`. A lost one is `conflict`. */
  readonly cas: (
    stream: string,
    subject: string,
    data: Uint8Array,
    expectedSeq: number,
    options?: WriteOptions,
  ) => Promise<number>;
  /** Adds a message. With `msgId` a repetition within the window is a duplicate. */
  readonly append: (
    stream: string,
    subject: string,
    data: Uint8Array,
    options?: WriteOptions & { readonly msgId?: string },
  ) => Promise<{ readonly seq: number; readonly duplicate: boolean }>;
  /** Numbers any other durable effect (a durable made, a batch) among the writes. */
  readonly effect: <T>(run: () => Promise<T>) => Promise<T>;
  /** How many were begun. */
  readonly count: () => number;
};

export type WriterOptions = {
  readonly nc: NatsConnection;
  /** Tests only. */
  readonly die?: Death | undefined;
};

const WRITE_TIMEOUT_MS = 5000;

export function createWriter({ nc, die }: WriterOptions): Writer {
  let count = 0;
  let dead = false;

  const end = (death: Death): never => {
    dead = true;
    death.kill?.();
    throw new Died(death);
  };

  const effect = async <T>(run: () => Promise<T>): Promise<T> => {
    if (dead && die !== undefined) end(die);
    count += 1;
    const mine = die?.at === count ? die : undefined;
    if (mine?.when === "before") end(mine);
    const result = await run();
    if (mine !== undefined) end(mine);
    return result;
  };

  return {
    create: (stream, subject, data, options) =>
      effect(async () => (await publish(nc, stream, subject, data, expecting(0, options), options)).seq),
    cas: (stream, subject, data, expectedSeq, options) => {
      if (!Number.isSafeInteger(expectedSeq) || expectedSeq < 1) {
        return Promise.reject(
          badRequest("a compare-and-set needs the sequence that was read", "use create for a new row"),
        );
      }
      return effect(
        async () => (await publish(nc, stream, subject, data, expecting(expectedSeq, options), options)).seq,
      );
    },
    append: (stream, subject, data, options) =>
      effect(() => {
        const sent = given(options);
        if (options?.msgId !== undefined) sent.set(Header.MsgId, options.msgId);
        return publish(nc, stream, subject, data, sent, options);
      }),
    effect,
    count: () => count,
  };
}

function given(options?: WriteOptions): MsgHdrs {
  const sent = headers();
  for (const [name, value] of Object.entries(options?.headers ?? {})) sent.set(name, value);
  return sent;
}

function expecting(seq: number, options?: WriteOptions): MsgHdrs {
  const sent = given(options);
  sent.set(Header.ExpectedLastSubjectSequence, String(seq));
  return sent;
}

async function publish(
  nc: NatsConnection,
  stream: string,
  subject: string,
  data: Uint8Array,
  sent: MsgHdrs,
  options?: WriteOptions,
): Promise<{ readonly seq: number; readonly duplicate: boolean }> {
  const doing = `write to ${stream}`;
  sent.set(Header.ExpectedStream, stream);
  let answer: Uint8Array;
  try {
    const timeoutMs = options?.timeoutMs ?? WRITE_TIMEOUT_MS;
    ({ data: answer } = await request(nc, subject, data, { headers: sent, timeoutMs }));
  } catch (thrown) {
    throw publishFault(thrown, doing);
  }
  const ack = parseAnswer(answer, doing);
  assertStream(ack, stream, doing);
  return { seq: numberIn(ack, "seq"), duplicate: ack["duplicate"] === true };
}

/** A publish that got no ack: silence is `unavailable`, and nobody knows what happened. */
export function publishFault(thrown: unknown, doing: string): CotalError {
  if (!(thrown instanceof TimeoutError)) return fromNats(thrown, doing);
  return new CotalError(ErrorCode.Unavailable, `${doing}: the broker did not acknowledge it in time`, {
    outcome: Outcome.Unknown,
    next: "read what is there before trying again",
    cause: thrown,
  });
}

/** An ack of another stream proves nothing about ours. */
export function assertStream(ack: Json, stream: string, doing: string): void {
  if (ack["stream"] === stream) return;
  throw new CotalError(ErrorCode.FailedPrecondition, `${doing}: the acknowledgement names another stream`, {
    outcome: Outcome.Unknown,
    next: "run cotal doctor: some other stream captures this subject",
  });
}
