/**
 * The callout of one space (§10): the broker asks on the space's auth account, and is answered.
 *
 * Several of these share the work through a queue group, also in several processes.
 *
 * Invariants
 * 1. A request that can be read is answered: with a JWT, or with a signed denial and its reason. One that
 *    can't be read names nobody to answer; it is counted.
 * 2. An answer is signed and sealed with this space's keys, for the server and the user key that asked.
 * 3. The ledger is asked once more after signing and before the answer leaves (decision H65): a
 *    revocation that came meanwhile is not overtaken.
 * 4. Bounded: at most `maxInFlight` connects at once, the rest are denied without a look at the ledger.
 * 5. Events carry no bearer, no JWT and nothing that the client wrote.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { sys } from "../../../shared/protocol/base/broker-subjects.ts";
import { CALLOUT_QUEUE } from "../../../shared/grants/host-profiles.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import {
  type CalloutRequest,
  type RequestFault,
  type Responder,
  allowResponse,
  denyResponse,
  readCalloutRequest,
} from "../../../shared/trust/callout.ts";
import { type AdmissionOptions, type Verdict, decide } from "./admission.ts";
import { type Denial, type DenialReason, denialLine, denials } from "./denials.ts";

export type CalloutOptions = AdmissionOptions & {
  /** A connection of a user that the auth account names. */
  readonly nc: NatsConnection;
  readonly by: Responder;
  readonly maxInFlight: number;
  readonly onEvent: (event: CalloutEvent) => void;
};

/** What happened to one request. `reason` and `fault` come from closed lists and fit a metric's label. */
export type CalloutEvent =
  | { readonly kind: "allowed"; readonly principal?: string; readonly milliseconds: number }
  | {
      readonly kind: "denied";
      readonly reason: DenialReason;
      /** The signed line. */
      readonly line: string;
      readonly principal?: string;
      readonly milliseconds: number;
      readonly cause: unknown;
    }
  | { readonly kind: "unreadable"; readonly fault: RequestFault }
  /** No answer left: the connection was gone, or an answer could not be made. */
  | { readonly kind: "unanswered"; readonly cause: unknown };

export type ServedCallout = {
  /** Settles when the subscription has ended; with the reason, unless it was stopped. */
  readonly ended: Promise<unknown>;
  /** Takes no more requests and answers those that are under way. */
  readonly stop: () => Promise<void>;
};

/** Longest wait of a broker for its answer; its own default is 2 s. */
export const DEFAULT_ANSWER_MS = 1_500;
export const DEFAULT_MAX_IN_FLIGHT = 512;

/** Serves until stopped; the broker has taken the subscription when this resolves. */
export async function serveCallout(options: CalloutOptions): Promise<ServedCallout> {
  const inFlight = new Set<Promise<void>>();
  const subscription = options.nc.subscribe(sys.userAuth, {
    queue: CALLOUT_QUEUE,
    callback: (error, message) => {
      if (error !== null) return;
      const one = serveOne(message, options, inFlight.size).catch((cause: unknown) => {
        options.onEvent({ kind: "unanswered", cause });
      });
      inFlight.add(one);
      void one.finally(() => inFlight.delete(one));
    },
  });
  await options.nc.flush();
  if (subscription.isClosed()) {
    throw new CotalError(ErrorCode.PermissionDenied, "the broker refused the callout's subscription", {
      next: "the auth account must name this user: run cotal up, or cotal space add, again",
    });
  }
  return {
    ended: subscription.closed.then((cause) => (cause instanceof Error ? cause : undefined)),
    stop: async () => {
      if (!subscription.isClosed()) await subscription.drain();
      await Promise.all(inFlight);
    },
  };
}

async function serveOne(message: Msg, options: CalloutOptions, inFlight: number): Promise<void> {
  const { by, now } = options;
  const began = performance.now();
  const sender = message.headers?.get(Header.ServerXkey);
  const read = readCalloutRequest(message.data, sender, { ...by, nowSeconds: Math.floor(now() / 1000) });
  if (!read.ok) {
    options.onEvent({ kind: "unreadable", fault: read.fault });
    return;
  }
  const verdict: Verdict =
    inFlight >= options.maxInFlight ? { kind: "deny", denial: denials.busy } : await decide(read.request, options);
  const { bytes, denied } = await settle(read.request, verdict, options);
  message.respond(bytes);
  const milliseconds = performance.now() - began;
  const who = verdict.principal === undefined ? {} : { principal: dotForm(verdict.principal) };
  if (denied === undefined) options.onEvent({ kind: "allowed", milliseconds, ...who });
  else {
    const { denial, cause } = denied;
    const line = denialLine(denial);
    options.onEvent({ kind: "denied", reason: denial.reason, line, cause, milliseconds, ...who });
  }
}

type Settled = { readonly bytes: Uint8Array; readonly denied?: { readonly denial: Denial; readonly cause?: unknown } };

/** The answer that leaves, and the denial in it if it is one. */
async function settle(request: CalloutRequest, verdict: Verdict, options: CalloutOptions): Promise<Settled> {
  const { by, authority } = options;
  const seconds = Math.floor(options.now() / 1000);
  const refuse = (denial: Denial, cause?: unknown): Settled => ({
    bytes: denyResponse(request, by, denialLine(denial), seconds),
    denied: { denial, cause },
  });
  if (verdict.kind === "deny") return refuse(verdict.denial, verdict.cause);
  const bytes = allowResponse(request, by, verdict.userJwt, seconds);
  try {
    const still = await authority.recheck(verdict.stamp);
    return still.ok ? { bytes } : refuse(denials.moved(still.code, still.reason));
  } catch (cause) {
    return refuse(denials.internal, cause);
  }
}
