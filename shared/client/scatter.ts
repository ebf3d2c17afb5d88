/**
 * Scatter: one request to every instance of a class, and what came of it, instance by instance (§13.5).
 *
 * Invariants
 * 1. What is expected is frozen before the request goes out: every live instance of the registry as
 *    `(instanceId, registrationRevision, epoch)`. An empty or unreadable registry is `failed-precondition`,
 *    never an empty success.
 * 2. An instance is counted once, by the first answer of its frozen incarnation. A second one is a
 *    `duplicate`, an answer of the same instance at another epoch is `churn`, one of an instance that was not
 *    expected is `unexpected`, one after the deadline is `late`: each is told, and none counts.
 * 3. It ends when all have answered or at the deadline. Of who has not answered, an instance whose
 *    registration or epoch has moved is `churn`, any other is `missing`.
 */
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { type Asked, readAnswer } from "../protocol/endpoint/answer.ts";
import { replyError } from "../protocol/endpoint/envelope.ts";
import { type Incarnation, parseReplySubject } from "../protocol/endpoint/grammar.ts";
import type { ShownEndpoint } from "../protocol/endpoint/reads-shapes.ts";
import type { Rail } from "./rail.ts";
import type { RailRequest } from "./request.ts";
import { isLive } from "./registry.ts";

/** One instance that is expected. */
export type Expected = Incarnation & { readonly registrationRevision: number };

/** What one instance answered: its data, or its refusal. */
export type InstanceAnswer = Incarnation &
  ({ readonly ok: true; readonly data: unknown } | { readonly ok: false; readonly error: CotalError });

export type Scattered = {
  readonly expected: readonly Expected[];
  /** The first answer of each instance that was expected, in the order in which they came. */
  readonly answers: readonly InstanceAnswer[];
  /** True if everyone who was expected has answered. */
  readonly complete: boolean;
  readonly missing: readonly Expected[];
  readonly churn: readonly Expected[];
  readonly late: readonly InstanceAnswer[];
  readonly duplicate: readonly InstanceAnswer[];
  readonly unexpected: readonly InstanceAnswer[];
  /** The broker said that nobody at all received it. */
  readonly nobody: boolean;
};

/** The instances that a scatter expects, from the registry as it was read. */
export function freeze(endpoint: string, entries: readonly ShownEndpoint[]): Expected[] {
  const expected = entries
    .filter(isLive)
    .map(({ instanceId, registrationRevision, epoch }) => ({ instanceId, registrationRevision, epoch }));
  if (expected.length > 0) return expected;
  throw new CotalError(ErrorCode.FailedPrecondition, `no instance of ${endpoint} is in the registry`, {
    outcome: Outcome.NotExecuted,
    next: "see what serves with cotal endpoints; start one first",
  });
}

/** The registry as somebody asks it for a scatter: one that can't be read is no empty one. */
export async function readable(endpoint: string, read: Promise<ShownEndpoint[]>): Promise<ShownEndpoint[]> {
  try {
    return await read;
  } catch (thrown) {
    throw new CotalError(ErrorCode.FailedPrecondition, `who serves ${endpoint} can't be read from the registry`, {
      outcome: Outcome.NotExecuted,
      next: "nothing was asked of anybody; cotal status shows whether the provisioner answers",
      cause: toCotalError(thrown),
    });
  }
}

export type Scattering = {
  readonly rail: Rail;
  readonly request: RailRequest;
  readonly expected: readonly Expected[];
  readonly deadlineMs: number;
  /** How long late answers are listened for, where some are owed. */
  readonly graceMs: number;
  /** The registry once more, for who has not answered. */
  readonly registry: () => Promise<readonly ShownEndpoint[]>;
  /** What is wrong with data that an instance answered. */
  readonly check: (data: unknown) => CotalError | undefined;
};

export async function scatter(scattering: Scattering): Promise<Scattered> {
  const { expected, deadlineMs, graceMs } = scattering;
  const found = createFound(expected);
  const { nobody, stop } = await gather(scattering, found, deadlineMs);
  try {
    const owed = found.owed();
    if (owed.length === 0 || nobody) return found.result(nobody, await moved(scattering, owed));
    found.end();
    const [changed] = await Promise.all([moved(scattering, owed), pause(graceMs)]);
    return found.result(nobody, changed);
  } finally {
    stop();
  }
}

/** Publishes and listens: until all have answered, or the deadline. Listens on until `stop`. */
function gather({ rail, request, check }: Scattering, found: Found, deadlineMs: number) {
  return new Promise<{ readonly nobody: boolean; readonly stop: () => void }>((resolve, reject) => {
    const gathered = rail.gather(request, deadlineMs, {
      heard: (subject, bytes) => {
        const answer = read(gathered.asked, subject, bytes, check);
        if (answer !== undefined) found.take(answer);
        if (found.owed().length === 0) done(false);
      },
      ended: (error) => {
        if (error.code === ErrorCode.Unavailable && error.outcome === Outcome.NotExecuted) return done(true);
        clearTimeout(timer);
        gathered.stop();
        reject(error);
      },
    });
    const done = (nobody: boolean): void => {
      clearTimeout(timer);
      resolve({ nobody, stop: gathered.stop });
    };
    const timer = setTimeout(() => done(false), deadlineMs);
  });
}

/** Who answered is read off the subject, also where what he says does not read. */
function read(
  asked: Asked,
  subject: string,
  bytes: Uint8Array,
  check: Scattering["check"],
): InstanceAnswer | undefined {
  const by = parseReplySubject(subject);
  if (by === undefined || by.endpoint !== asked.endpoint || by.space !== asked.space) return undefined;
  const who = { instanceId: by.instanceId, epoch: by.epoch };
  const answer = readAnswer(asked, subject, bytes);
  if (!answer.ok) return { ...who, ok: false, error: answer.error };
  const { reply } = answer;
  if (!reply.ok) return { ...who, ok: false, error: replyError(reply) };
  const wrong = check(reply.data);
  return wrong === undefined ? { ...who, ok: true, data: reply.data } : { ...who, ok: false, error: wrong };
}

type Found = ReturnType<typeof createFound>;

function createFound(expected: readonly Expected[]) {
  const frozen = new Map(expected.map((one) => [one.instanceId, one]));
  const answers = new Map<string, InstanceAnswer>();
  const churned = new Set<string>();
  const late: InstanceAnswer[] = [];
  const duplicate: InstanceAnswer[] = [];
  const unexpected: InstanceAnswer[] = [];
  let over = false;
  return {
    take: (answer: InstanceAnswer): void => {
      const one = frozen.get(answer.instanceId);
      if (one === undefined) unexpected.push(answer);
      else if (one.epoch !== answer.epoch) churned.add(one.instanceId);
      else if (answers.has(one.instanceId) || late.some(({ instanceId }) => instanceId === one.instanceId)) {
        duplicate.push(answer);
      } else if (over) late.push(answer);
      else answers.set(one.instanceId, answer);
    },
    /** Who has not answered. */
    owed: (): Expected[] => expected.filter(({ instanceId }) => !answers.has(instanceId)),
    /** The deadline has come: what follows is late. */
    end: (): void => {
      over = true;
    },
    result: (nobody: boolean, changed: ReadonlySet<string>): Scattered => {
      const owed = expected.filter(({ instanceId }) => !answers.has(instanceId));
      const isChurn = ({ instanceId }: Expected) => churned.has(instanceId) || changed.has(instanceId);
      const isLate = (one: Expected) => late.some(({ instanceId }) => instanceId === one.instanceId);
      return {
        expected,
        answers: [...answers.values()],
        complete: owed.length === 0,
        churn: owed.filter(isChurn),
        missing: owed.filter((one) => !isChurn(one) && !isLate(one)),
        late,
        duplicate,
        unexpected,
        nobody,
      };
    },
  };
}

/** Instances of these whose registration or epoch is not what was frozen. What can't be read has not moved. */
async function moved({ registry }: Scattering, owed: readonly Expected[]): Promise<ReadonlySet<string>> {
  if (owed.length === 0) return new Set();
  const now = await registry().catch(() => undefined);
  if (now === undefined) return new Set();
  const entries = new Map(now.map((entry) => [entry.instanceId, entry]));
  return new Set(
    owed
      .filter(({ instanceId, registrationRevision, epoch }) => {
        const entry = entries.get(instanceId);
        return entry !== undefined && (entry.registrationRevision !== registrationRevision || entry.epoch !== epoch);
      })
      .map(({ instanceId }) => instanceId),
  );
}

const pause = (ms: number) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, ms);
  });
