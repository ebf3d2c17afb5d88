/**
 * Hosts an endpoint of one's own in a space (supplement A, §13.7): signs in as an actor that may serve,
 * registers the contract, serves it, keeps its credential alive, and ends in good order.
 *
 * Siblings: `incarnation.ts` one serving connection, `trusted-view.ts` what a caller may see.
 *
 * Invariants
 * 1. Nothing is served before it is registered, and only what is registered.
 * 2. The key that serves is drawn here and stays here; the space gets its public half.
 * 3. A new incarnation serves before the old one is drained: no moment is without a server.
 * 4. A process whose place was taken ends: its `closed` says so. Whatever else goes wrong is tried again,
 *    slower each time, while its credential lasts.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Session, type SessionOptions, connect } from "../client/index.ts";
import { resolveTarget } from "../client/options.ts";
import { resolveIdentity } from "../client/identity.ts";
import { ProvisionerCommand } from "../grants/commands.ts";
import { inboxPrefix } from "../protocol/base/broker-subjects.ts";
import { type CotalError, ErrorCode, RETRY_AFTER, badRequest, toCotalError } from "../protocol/base/errors.ts";
import { drawNonce } from "../protocol/base/principals.ts";
import { type Contract, compileContract } from "../protocol/contract/contract.ts";
import type { ClusterDeclaration } from "../protocol/contract/declare.ts";
import { createValidators } from "../protocol/contract/validators.ts";
import type { BodyTarget } from "../protocol/endpoint/envelope.ts";
import { type Caller, EndpointName } from "../protocol/endpoint/grammar.ts";
import { RegisterAnswer, type ServeCredential } from "../protocol/endpoint/provisioner-shapes.ts";
import type { Guard } from "../serve/handlers.ts";
import type { HandlerTable, ServedEvent } from "../serve/serve.ts";
import { newKey } from "../trust/keys.ts";
import { type Incarnation, openIncarnation } from "./incarnation.ts";
import { trustedView } from "./trusted-view.ts";

export type HostedEndpoint = {
  /** A reverse-DNS name that the operator has assigned to this actor's owner. */
  readonly endpoint: string;
  readonly clusters: readonly ClusterDeclaration[];
  readonly handlers: HandlerTable;
  /** The instance that this process takes over, once its predecessor is over; a new one if left out. */
  readonly instanceId?: string;
  /** Everybody may see the whole contract; otherwise each caller sees what it may call. */
  readonly publicDescriptor?: boolean;
  /** For commands with a target of another's: throws if the target is no more what it was. */
  readonly checkTarget?: (target: BodyTarget, caller: Caller) => Promise<void>;
  /** Asked before every handler, with parsed arguments; throws to refuse. */
  readonly guard?: Guard;
  /** Requests that may run at once, in all and for one caller. */
  readonly concurrency?: number;
  readonly perCaller?: number;
  readonly onServed?: (event: ServedEvent) => void;
  /** What went wrong and is tried again. */
  readonly onTrouble?: (error: CotalError) => void;
};

export type Host = {
  /** The actor's own session: to post, to call others. */
  readonly session: Session;
  readonly instanceId: string;
  readonly epoch: number;
  /** Resolves at the end: with its cause, or with nothing after `drain`. */
  readonly closed: Promise<CotalError | undefined>;
  /** Takes no new request, answers those that run, says that it stops, and ends. */
  readonly drain: () => Promise<void>;
};

/** A registration waits until a predecessor is proved gone. */
const REGISTER_MS = 25_000;
const RENEW_MS = 5_000;
/** How long a start waits for daemons that start beside it. */
const ABSENT_MS = 60_000;
const DEFAULTS = { concurrency: 256, perCaller: 32 } as const;
/** A credential is renewed when this share of its life is over, a little earlier or later. */
const RENEW_AT = { from: 0.45, spread: 0.1 } as const;
const PAUSE_MS = { first: 500, most: 15_000 } as const;

export async function hostEndpoint(options: SessionOptions, hosted: HostedEndpoint): Promise<Host> {
  const contract = compileContract(hosted.clusters, createValidators());
  const session = await connect({ presence: false, ...options });
  try {
    return await host(options, session, hosted, contract);
  } catch (thrown) {
    await session.close();
    throw thrown;
  }
}

async function host(
  options: SessionOptions,
  session: Session,
  hosted: HostedEndpoint,
  contract: Contract,
): Promise<Host> {
  const { endpoint } = hosted;
  const { space } = session.me;
  const user = newKey("user");
  const ask = async (args: object, deadlineMs: number): Promise<RegisterAnswer> =>
    RegisterAnswer.parse(
      (await session.call(EndpointName.Provisioner, ProvisionerCommand.Register, args, { deadlineMs })).data,
    );
  const asked = {
    endpoint,
    userKey: user.publicKey,
    clusterDigests: contract.clusterDigests,
    artifacts: contract.artifacts.map(({ text }) => text),
    ...(hosted.instanceId === undefined ? {} : { instanceId: hosted.instanceId }),
  };
  const registered = await registering(() => ask(asked, REGISTER_MS), hosted, options.signal);
  const { instanceId, epoch, registrationRevision } = registered;
  const dialing = dialOptions(options, session, instanceId);
  let credential = registered.credential;
  const open = (): Promise<Incarnation> => {
    const { jwt, inboxNonce } = credential ?? { jwt: undefined, inboxNonce: drawNonce(randomBytes) };
    const authenticator = jwt === undefined ? dialing.open : { jwt: () => jwt, sign: user.sign };
    return openIncarnation({
      dial: {
        ...dialing.to,
        inboxPrefix: inboxPrefix(instanceId, inboxNonce),
        ...(authenticator === undefined ? {} : { authenticator }),
      },
      serve: {
        space,
        endpoint,
        instanceId,
        epoch,
        contract,
        handlers: hosted.handlers,
        registrationRevision: () => registrationRevision,
        publicDescriptor: hosted.publicDescriptor ?? false,
        view: trustedView({ call: session.call, endpoint, contract, ...faults(hosted) }),
        ...(hosted.checkTarget === undefined ? {} : { checkTarget: hosted.checkTarget }),
        ...(hosted.guard === undefined ? {} : { guard: hosted.guard }),
        concurrency: hosted.concurrency ?? DEFAULTS.concurrency,
        perCaller: hosted.perCaller ?? DEFAULTS.perCaller,
        onServed: hosted.onServed ?? (() => undefined),
        now: () => performance.now(),
      },
    });
  };
  const status = (state: string) => ({ state, observedSpecRevision: registrationRevision });

  let current = await open();
  current.report(status("ready"));
  const stopping = new AbortController();
  let finish: (cause: CotalError | undefined) => void = () => undefined;
  const closed = new Promise<CotalError | undefined>((resolve) => {
    finish = resolve;
  });
  let ending: Promise<void> | undefined;
  const end = (cause: CotalError | undefined, farewell: boolean): Promise<void> =>
    (ending ??= (async () => {
      stopping.abort();
      await current.end(farewell ? status("stopped") : undefined).catch(() => undefined);
      await session.close();
      finish(cause);
    })());

  const renew = async (): Promise<void> => {
    const answer = await ask({ endpoint, instanceId, epoch, userKey: user.publicKey }, RENEW_MS);
    credential = answer.credential;
    const before = current;
    current = await open();
    current.report(status("ready"));
    await before.end();
  };
  const keepAlive = async (): Promise<void> => {
    let pause: number = PAUSE_MS.first;
    let wait = credential === undefined ? undefined : renewIn(credential);
    while (wait !== undefined && !stopping.signal.aborted) {
      await sleep(wait, undefined, { signal: stopping.signal }).catch(() => undefined);
      if (stopping.signal.aborted) return;
      try {
        await renew();
        pause = PAUSE_MS.first;
        wait = credential === undefined ? undefined : renewIn(credential);
      } catch (thrown) {
        const error = toCotalError(thrown);
        hosted.onTrouble?.(error);
        if (isOver(error)) {
          await end(error, false);
          return;
        }
        wait = pause * (0.5 + Math.random() / 2);
        pause = Math.min(pause * 2, PAUSE_MS.most);
      }
    }
  };
  void keepAlive();
  void session.closed.then((error) => end(error, false));
  return {
    session,
    instanceId,
    epoch,
    closed,
    drain: () => end(undefined, true),
  };
}

/**
 * Waits as long as it is told to (its predecessor is not over, it registers too often), and a while for a
 * space whose daemons are not there yet. A repetition is the same operation: it asks with the same key.
 */
async function registering<T>(run: () => Promise<T>, { onTrouble }: HostedEndpoint, signal?: AbortSignal): Promise<T> {
  const began = performance.now();
  for (;;) {
    try {
      return await run();
    } catch (thrown) {
      const error = toCotalError(thrown);
      const wait = error.details.find(({ kind }) => kind === RETRY_AFTER)?.["ms"] ?? patience(error, began);
      if (typeof wait !== "number" || signal?.aborted === true) throw error;
      onTrouble?.(error);
      await sleep(wait + Math.random() * PAUSE_MS.first, undefined, { signal }).catch(() => undefined);
    }
  }
}

function patience({ code }: CotalError, began: number): number | undefined {
  const passing = code === ErrorCode.Unavailable || code === ErrorCode.DeadlineExceeded;
  return passing && performance.now() - began < ABSENT_MS ? PAUSE_MS.first : undefined;
}

/** Another process has taken the instance over, or the right to serve was taken away. */
function isOver({ code }: CotalError): boolean {
  return code === ErrorCode.Expired || code === ErrorCode.NotFound || code === ErrorCode.PermissionDenied;
}

function renewIn({ expires }: ServeCredential): number {
  const left = Math.max(0, expires * 1000 - Date.now());
  return left * (RENEW_AT.from + Math.random() * RENEW_AT.spread);
}

function faults({ onTrouble }: HostedEndpoint) {
  return onTrouble === undefined ? {} : { onFault: onTrouble };
}

/** Where the session is connected, and in an open space with what. */
function dialOptions(options: SessionOptions, { me }: Session, instanceId: string) {
  const { servers, tls, identity } = resolveTarget(options);
  const { credentials } = identity;
  if (me.mode === "open" && credentials.kind !== "open") throw badRequest("an open space takes no credential");
  const open =
    credentials.kind === "open" ? resolveIdentity({ ...identity, credentials }, randomBytes).authenticator : undefined;
  return { open, to: { servers, name: instanceId, ...(tls === undefined ? {} : { tls }) } };
}
