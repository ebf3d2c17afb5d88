/**
 * A session of the SDK for one command: opened, used, and drained whatever happens.
 *
 * Invariants
 * 1. The first connection is tried a few times and then given up as `unavailable`; a command that
 *    stays (tail, join) reconnects without end afterwards.
 * 2. What the session tells and a person should know goes to standard error, once each.
 */
import { connect } from "../shared/client/session.ts";
import type { SessionEvent } from "../shared/client/events.ts";
import type { Session } from "../shared/client/session-types.ts";
import { isOfExchange } from "../shared/client/exchange.ts";
import type { Credentials } from "../shared/client/identity.ts";
import { type CotalError, ErrorCode, toCotalError } from "../shared/protocol/base/errors.ts";
import type { Output } from "./output.ts";
import { reached, refusedLogin } from "./reach.ts";
import type { Target } from "./target.ts";
import { oneLine } from "./text.ts";

export type SessionUse = {
  readonly target: Target;
  readonly credentials: Credentials;
  readonly out: Output;
  /** Shows up in the roster, and stays connected until told otherwise. */
  readonly stays: boolean;
  readonly role?: string;
};

/** Failed dials after which the broker counts as away; each may take long where something hangs. */
const FIRST_DIALS = 3;
const PATIENCE_MS = 9000;
/** A limit that lasts longer is said, and not waited for. */
const LONG_WAIT_MS = 5000;

/** Opens a session, runs, drains. */
export async function withSession<T>(use: SessionUse, run: (session: Session) => Promise<T>): Promise<T> {
  const session = await open(use);
  try {
    return await run(session);
  } catch (thrown) {
    const error = toCotalError(thrown);
    throw error.code === ErrorCode.Unauthenticated ? refusedLogin(use.target, use.credentials, error) : thrown;
  } finally {
    await session.drain();
  }
}

async function open({ target, credentials, out, stays, role }: SessionUse): Promise<Session> {
  const giveUp = new AbortController();
  const notices = createNotices(out, stays);
  const began = performance.now();
  let isOpen = false;
  let last: CotalError | undefined;
  const onEvent = (event: SessionEvent): void => {
    if (isOpen) return notices(event);
    if (event.type !== "retrying") return;
    last = event.error ?? last;
    const isLong = event.waitMs > LONG_WAIT_MS && event.error?.code === ErrorCode.ResourceExhausted;
    const isPatient = performance.now() - began < PATIENCE_MS;
    if (event.failures >= FIRST_DIALS || isLong || !isPatient) giveUp.abort();
  };
  const dial = async (): Promise<Session> => {
    try {
      return await connect({
        ownPosts: true,
        // Short pulls: a command that is ended waits for those that are out.
        limits: { pullExpiresMs: 500 },
        servers: [target.server],
        space: target.space,
        credentials,
        presence: stays,
        signal: giveUp.signal,
        onEvent,
        ...(target.server.startsWith("tls:") ? { tls: {} } : {}),
        ...(role === undefined ? {} : { role }),
      });
    } catch (thrown) {
      if (giveUp.signal.aborted && last !== undefined) throw last;
      throw thrown;
    }
  };
  const session = await reached(target, dial, credentials);
  isOpen = true;
  return session;
}

/** Events as notices; what repeats with every heartbeat or message is said when it changes. */
function createNotices(out: Output, stays: boolean): (event: SessionEvent) => void {
  let isUp = true;
  const said = new Set<string>();
  const say = (event: SessionEvent, text: string): void => {
    if (said.has(text)) return;
    said.add(text);
    out.notice({ kind: "notice", about: event.type, message: text }, oneLine(text));
  };
  return (event) => {
    switch (event.type) {
      case "down":
        // The next credential is presented: nothing that a person should know.
        if (event.expired === true) return undefined;
        isUp = false;
        return out.notice({ kind: "notice", about: "down" }, "the connection ended; it is opened again");
      case "up":
        if (!isUp) out.notice({ kind: "notice", about: "up" }, "the connection is back");
        isUp = true;
        return undefined;
      case "refused":
        // A command that does one thing ends with that refusal.
        if (!stays) return undefined;
        return say(event, `${event.channel === undefined ? "" : `#${event.channel}: `}${event.error.message}`);
      case "shortfall":
        return say(event, event.message);
      case "joined-durable":
        return say(event, `#${event.channel} has its durable backstop now`);
      case "retrying":
        // The exchange says why there is no next sign-in yet; that a broker is away has been said.
        if (event.error === undefined || !isOfExchange(event.error)) return undefined;
        return say(event, event.error.message);
      case "unrenewed":
        return say(event, `the sign-in can't be renewed now: ${event.error.message}`);
      case "rejected":
        return say(event, `a message that breaks the contract was left out (${event.reason}: ${event.detail})`);
      case "dropped":
        return say(event, "channel messages came faster than they could be shown; the oldest were left out");
      case "durable-missing":
        return say(event, `the inbox ${event.durable} does not answer; run cotal doctor`);
      case "takes-nothing":
        return say(event, `${event.message}; ${event.next}`);
      case "replay-failed":
        return say(event, `earlier messages of #${event.channel} can't be read now: ${event.error.message}`);
      default:
        return undefined;
    }
  };
}
