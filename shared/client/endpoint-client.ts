/**
 * Calls anybody's endpoint by its contract: resolve, check, pin, call, cast, scatter (§13.5, supplement A).
 *
 * Invariants
 * 1. Every command but `describe` is called with the digests of schemas that were fetched and verified.
 *    Arguments are checked before they are sent, answers before they are handed over.
 * 2. An answer that is rejected here keeps what it says of the effect: data that does not fit its schema came
 *    from a handler that ran.
 * 3. A call is repeated only as `retry.ts` allows, and only if asked to; but for refusals that prove that
 *    nothing ran and that this client's own knowledge may be old: another contract, another incarnation,
 *    arguments that did not fit what was kept. After these it resolves anew, once.
 * 4. A peer that does not say which protocol it speaks is not addressed (§6).
 */
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { type Principal, dotForm, isLifecycleUid } from "../protocol/base/principals.ts";
import { type Validators, createValidators } from "../protocol/contract/validators.ts";
import { type Bind, DEFAULT_DEADLINE_MS, DeliveryClass } from "../protocol/endpoint/envelope.ts";
import { DetailKind } from "../protocol/endpoint/error-codes.ts";
import { DESCRIBE, Route } from "../protocol/endpoint/grammar.ts";
import type { RouteTo } from "../protocol/endpoint/request-subject.ts";
import type { ShownEndpoint } from "../protocol/endpoint/reads-shapes.ts";
import { createArtifacts } from "./artifacts.ts";
import { type Call, type CallResult, callOn, resultOf } from "./caller.ts";
import { type CallTarget, addressedTo } from "./call-target.ts";
import type { Rail } from "./rail.ts";
import { type RailRequest, checkDeadline } from "./request.ts";
import { readEndpoints, refuseForeign } from "./registry.ts";
import { type Described, type Resolved, createResolver } from "./resolve.ts";
import { type RetryClock, mayRepeat, withRetries } from "./retry.ts";
import { type Scattered, freeze, readable, scatter } from "./scatter.ts";

export type EndpointClientOptions = {
  readonly rail: Rail;
  /** How the provisioner's reads are called; on the same rail, with this project's own digests. */
  readonly reads?: Call;
  /** What a peer says of itself (§6): absent where nothing is known of it. */
  readonly peer?: (who: Principal) => Promise<{ readonly protocolVersion?: string } | undefined>;
  readonly validators?: Validators;
  readonly clock?: Partial<RetryClock>;
};

export type CommandOptions = {
  /** Milliseconds for everything: to resolve, to call, to repeat. */
  readonly deadlineMs?: number;
  readonly traceparent?: string;
  readonly target?: CallTarget;
  /** One instance instead of any of the class. */
  readonly instance?: string;
  /** Take an effect from this incarnation alone; `described`: from the one that described itself. */
  readonly bind?: Bind | "described";
};

export type RepeatOptions = {
  /** Repeat what may be repeated until the deadline: a `write` only if it is proved that nothing ran. */
  readonly retry?: boolean;
  /** Of a `read` that is repeated: how long one try waits. */
  readonly attemptMs?: number;
};

export type ScatterOptions = Pick<CommandOptions, "deadlineMs" | "traceparent" | "target"> & {
  /** How long answers after the deadline are listened for. */
  readonly graceMs?: number;
};

/** `gone`: the broker says that nobody serves it. Nothing else is a verdict. */
export type Liveness = "gone" | "unproven";

export type EndpointClient = {
  readonly endpoints: (endpoint?: string, deadlineMs?: number) => Promise<ShownEndpoint[]>;
  readonly describe: (endpoint: string, deadlineMs?: number) => Promise<Described>;
  /** The command's verified contract. */
  readonly resolve: (endpoint: string, command: string, deadlineMs?: number) => Promise<Resolved>;
  readonly call: (
    endpoint: string,
    command: string,
    args: unknown,
    options?: CommandOptions & RepeatOptions,
  ) => Promise<CallResult>;
  /** At most once, and nobody answers. A publish that the broker refuses is `permission-denied`. */
  readonly cast: (endpoint: string, command: string, args: unknown, options?: CommandOptions) => Promise<void>;
  readonly scatter: (endpoint: string, command: string, args: unknown, options?: ScatterOptions) => Promise<Scattered>;
  /** Asks the broker about one instance's own rail. */
  readonly liveness: (endpoint: string, instance: string) => Promise<Liveness>;
};

const GRACE_MS = 250;
const READ_MS = 10_000;

export function createEndpointClient(options: EndpointClientOptions): EndpointClient {
  const { rail, reads = callOn(rail), validators = createValidators() } = options;
  const clock: RetryClock = {
    now: () => performance.now(),
    sleep: (ms) => sleep(ms),
    jitter: Math.random,
    ...options.clock,
  };
  const resolver = createResolver({
    fetch: createArtifacts({ call: reads, deadlineMs: READ_MS }),
    describe: async (endpoint) => {
      const address = { route: Route.One, endpoint, command: DESCRIBE } as const;
      const heard = await rail.ask({ address, args: undefined }, DEFAULT_DEADLINE_MS);
      return { data: resultOf(heard).data, by: heard.by };
    },
  });

  const resolve = async (endpoint: string, command: string, leftMs: number): Promise<Resolved> =>
    resolver.ready(endpoint, command) ?? resolver.command(endpoint, command, leftMs);

  /** The request, and everything about it that can be refused before it is sent. */
  const prepare = async (
    endpoint: string,
    resolved: Resolved,
    to: RouteTo,
    args: unknown,
    { target, traceparent, bind }: CommandOptions,
  ): Promise<RailRequest> => {
    const { command, input } = resolved;
    checkClass(endpoint, resolved);
    const addressed = addressedTo(command, target);
    if (addressed.who !== undefined) await checkPeer(options, addressed.who);
    checkArgs(validators, input, args, `${endpoint} ${command.name}`);
    return {
      address: {
        ...to,
        endpoint,
        command: command.name,
        ...(addressed.block === undefined ? {} : { target: addressed.block }),
      },
      digests: { inputDigest: command.inputDigest, outputDigest: command.outputDigest },
      args,
      ...(addressed.body === undefined ? {} : { target: addressed.body }),
      ...(bind === undefined ? {} : { bind: bind === "described" ? resolved.by : bind }),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
  };

  const outputFault = ({ output }: Resolved, what: string, data: unknown): CotalError | undefined => {
    const [problem] = validators.of(output).check(data);
    if (problem === undefined) return undefined;
    return new CotalError(
      ErrorCode.ContractMismatch,
      `the answer of ${what} does not fit its contract: ${problem.path || "/"} ${problem.message}`,
      { outcome: Outcome.Executed, next: "it ran; report the answer to whoever runs that endpoint" },
    );
  };

  const client: EndpointClient = {
    endpoints: (endpoint, deadlineMs = READ_MS) => readEndpoints(reads, deadlineMs, endpoint),
    describe: (endpoint, deadlineMs = DEFAULT_DEADLINE_MS) => resolver.describe(endpoint, deadlineMs),
    resolve: (endpoint, command, deadlineMs = DEFAULT_DEADLINE_MS) => resolve(endpoint, command, deadlineMs),
    call: async (endpoint, command, args, more = {}) => {
      const { deadlineMs = DEFAULT_DEADLINE_MS, retry = false, attemptMs } = more;
      checkDeadline(deadlineMs);
      let resolved: Resolved | undefined;
      let renewed = false;
      const once = async (leftMs: number): Promise<CallResult> => {
        const end = clock.now() + leftMs;
        const known = resolver.ready(endpoint, command) ?? (await resolver.command(endpoint, command, leftMs));
        refuseOther(resolved, known, `${endpoint} ${command}`);
        resolved = known;
        const request = await prepare(endpoint, known, routeTo(more), args, more);
        const left = Math.max(1, Math.floor(end - clock.now()));
        const isBounded = retry && attemptMs !== undefined && known.command.effect === "read";
        const heard = await rail.ask(request, isBounded ? Math.min(left, attemptMs) : left);
        const result = resultOf(heard);
        const fault = outputFault(known, `${endpoint} ${command}`, result.data);
        if (fault !== undefined) throw fault;
        return result;
      };
      const attempt = async (leftMs: number): Promise<CallResult> => {
        const end = clock.now() + leftMs;
        const wasKept = resolver.keptRevision(endpoint) !== undefined;
        try {
          return await once(leftMs);
        } catch (thrown) {
          if (renewed || resolved === undefined || !isOld(thrown, more, wasKept)) throw thrown;
          renewed = true;
          resolver.forget(endpoint);
          return once(Math.max(1, Math.floor(end - clock.now())));
        }
      };
      return withRetries(clock, {
        deadlineMs,
        isRepeated: (error) => retry && mayRepeat(error, resolved?.command.effect),
        attempt,
      });
    },
    cast: async (endpoint, command, args, more = {}) => {
      const { deadlineMs = DEFAULT_DEADLINE_MS } = more;
      checkDeadline(deadlineMs);
      const end = clock.now() + deadlineMs;
      const resolved = await resolve(endpoint, command, deadlineMs);
      const request = await prepare(endpoint, resolved, routeTo(more), args, more);
      await rail.cast(request, Math.max(1, Math.floor(end - clock.now())));
    },
    scatter: async (endpoint, command, args, more = {}) => {
      const { deadlineMs = DEFAULT_DEADLINE_MS, graceMs = GRACE_MS } = more;
      checkDeadline(deadlineMs);
      const end = clock.now() + deadlineMs;
      const left = (): number => Math.max(1, Math.floor(end - clock.now()));
      const entries = await readable(endpoint, client.endpoints(endpoint, left()));
      const expected = freeze(endpoint, entries);
      refuseForeign(entries);
      const resolved = await resolve(endpoint, command, left());
      const request = await prepare(endpoint, resolved, { route: Route.All }, args, more);
      return scatter({
        rail,
        request,
        expected,
        deadlineMs: left(),
        graceMs,
        registry: () => client.endpoints(endpoint, READ_MS),
        check: (data) => outputFault(resolved, `${endpoint} ${command}`, data),
      });
    },
    liveness: async (endpoint, instance) => {
      let verdict: Liveness = "unproven";
      const address = { route: Route.Inst, endpoint, instanceId: instanceOf(instance), command: DESCRIBE } as const;
      await rail.cast({ address, args: undefined }, READ_MS, () => {
        verdict = "gone";
      });
      return verdict;
    },
  };
  return client;
}

function routeTo({ instance }: CommandOptions): RouteTo {
  return instance === undefined ? { route: Route.One } : { route: Route.Inst, instanceId: instanceOf(instance) };
}

function instanceOf(text: string): string {
  if (isLifecycleUid(text)) return text;
  throw badRequest("an instance is named by its id, 26 to 32 of a-z and 0-9", "see cotal endpoints");
}

/** Journaled work goes through submissions (§13.5). */
function checkClass(endpoint: string, { command }: Resolved): void {
  if (command.class === DeliveryClass.Ephemeral) return;
  throw new CotalError(ErrorCode.ClassMismatch, `${endpoint} ${command.name} is of the class ${command.class}`, {
    outcome: Outcome.NotExecuted,
    next: "it is submitted, not called or cast",
  });
}

function checkArgs(validators: Validators, input: Resolved["input"], args: unknown, what: string): void {
  const problems = validators.of(input).check(args);
  if (problems.length === 0) return;
  const shown = problems.map(({ path, message }) => `${path || "/"} ${message}`).join("; ");
  throw badRequest(
    `the arguments of ${what} do not fit: ${shown}`,
    "cotal describe ENDPOINT COMMAND shows what it takes",
  );
}

async function checkPeer({ peer }: EndpointClientOptions, who: Principal): Promise<void> {
  const said = await peer?.(who);
  if (said === undefined || said.protocolVersion !== undefined) return;
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `${dotForm(who)} does not say which protocol it speaks: it is from before endpoints and can't be addressed so`,
    { outcome: Outcome.NotExecuted, next: "have it restarted with a current version" },
  );
}

/** A refusal upon which this client resolves anew: it proves that nothing ran, and that its knowledge is old. */
function isOld(thrown: unknown, { bind }: CommandOptions, wasKept: boolean): boolean {
  if (!(thrown instanceof CotalError) || thrown.outcome !== Outcome.NotExecuted) return false;
  if (thrown.code === ErrorCode.ContractMismatch) return true;
  // A contract grows: arguments that did not fit the one that was kept may fit it now.
  if (thrown.code === ErrorCode.BadRequest && wasKept) return true;
  return bind === "described" && thrown.details.some(({ kind }) => kind === DetailKind.BindRefused);
}

/** What was asked for is one command of one line; under the same name another one may be served by now. */
function refuseOther(before: Resolved | undefined, now: Resolved, what: string): void {
  if (before === undefined || before === now) return;
  if (before.command.cluster === now.command.cluster && before.command.effect === now.command.effect) return;
  throw new CotalError(ErrorCode.ContractMismatch, `${what} is another command than it was a moment ago`, {
    outcome: Outcome.NotExecuted,
    next: "describe the endpoint, and ask again if it still is what you want",
  });
}
