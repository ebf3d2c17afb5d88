/**
 * Is anybody of a principal still connected? Asked of the broker, in a sweep of the front account.
 *
 * A sweep shows who is connected while its pages are made. That nobody of an ended lifecycle is left it
 * proves only if it begins late enough: a connect whose last look at the ledger came just before the end is
 * in, or never will be, once the broker's own time for a login is over (decision H65).
 *
 * Invariants
 * 1. `none` is proved: by a complete sweep that began `SETTLE_MS` after the question. So whoever asks once
 *    the gate is frozen may build on it.
 * 2. A sweep is complete if the one server that is the whole broker has listed every connection
 *    (`connection-pages.ts`), and the connection that asks is among them.
 * 3. Everything else is unknown and says what is missing. Unknown is never "none".
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type ConnectionsPage, type PageSizes, followPages, nameOf, pageOf, pageQuestion } from "./connection-pages.ts";
import { sys } from "../protocol/base/broker-subjects.ts";
import { ErrorCode } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";

/** What is proved of a principal's connections. */
export type Connected =
  | { readonly kind: "none" }
  | { readonly kind: "some"; readonly count: number }
  /** Nothing is: why, and what helps. */
  | { readonly kind: "unknown"; readonly code: ErrorCode; readonly why: string; readonly next: string };

/** What a sweep needs of a connection. */
export type Asking = Pick<NatsConnection, "info" | "request" | "requestMany">;

/** A broker gives a login `MOST_LOGIN_SECONDS`, which the trust program sees to on every server; and a margin. */
export const SETTLE_MS = 4000;
const SIZES: PageSizes = { page: 1024, overlap: 128 };
const ANSWER_MS = 2000;
/** How long a second server may take to answer after the first. */
const QUIET_MS = 300;

/** `of` hands over a connection in front, if this process has one. */
export function connectionsOver(
  of: () => Asking | undefined,
  pause: (ms: number) => Promise<unknown> = sleep,
): (p: Principal) => Promise<Connected> {
  return async (p) => {
    // Who is there already need not be waited for.
    const now = await sweep(of(), p);
    if (now.kind !== "none") return now;
    await pause(SETTLE_MS);
    return sweep(of(), p);
  };
}

/** Who is connected now. */
export async function sweep(front: Asking | undefined, p: Principal, sizes: PageSizes = SIZES): Promise<Connected> {
  const info = front?.info;
  if (front === undefined || info === undefined) return unanswered;
  if (info.cluster !== undefined) return clustered;
  let count = 0;
  let isSelfSeen = false;
  const follow = followPages(sizes);
  for (let offset = 0; ;) {
    const answers = await ask(front, offset, sizes.page);
    const [answer] = answers;
    if (answer === undefined) return unanswered;
    if (answers.length > 1 || answer.server.id !== info.server_id) return clustered;
    const { fresh, next } = follow(answer);
    for (const one of fresh) {
      const name = nameOf(one);
      if (name === undefined) return nameless;
      if (name === dotForm(p)) count += 1;
      if (one.cid === info.client_id) isSelfSeen = true;
    }
    if (next.kind === "moving") return moving;
    if (next.kind === "end") return verdict(count, isSelfSeen);
    offset = next.offset;
  }
}

function verdict(count: number, isSelfSeen: boolean): Connected {
  if (count > 0) return { kind: "some", count };
  return isSelfSeen ? { kind: "none" } : moving;
}

/** The first page is asked of all servers there may be; the rest of the one that answered. */
async function ask(front: Asking, offset: number, limit: number): Promise<ConnectionsPage[]> {
  const body = pageQuestion(offset, limit);
  try {
    if (offset > 0) return [pageOf(await front.request(sys.ownConnections, body, { timeout: ANSWER_MS }))];
    const found: ConnectionsPage[] = [];
    const answers = await front.requestMany(sys.ownConnections, body, {
      strategy: "stall",
      maxWait: ANSWER_MS,
      stall: QUIET_MS,
      maxMessages: 2,
    });
    for await (const message of answers) found.push(pageOf(message));
    return found;
  } catch {
    // Silence, a refusal, and an answer that is none come to the same: nothing is known.
    return [];
  }
}

const unknown = (code: ErrorCode, why: string, next: string): Connected => ({ kind: "unknown", code, why, next });

const unanswered = unknown(
  ErrorCode.Unavailable,
  "the broker did not say who is connected",
  "ask again when the broker is reached; cotal doctor shows it",
);
const clustered = unknown(
  ErrorCode.Unimplemented,
  "in a cluster that can't be proved before connections can be ended",
  "grant another name",
);
const moving = unknown(ErrorCode.Unavailable, "connections came and went while they were counted", "ask again");
const nameless = unknown(
  ErrorCode.FailedPrecondition,
  "a connection in the front account bears no name",
  "find out whose it is: only this project's own credentials belong there",
);
