/**
 * A chat session of a person who signs in (§10): an actor of its own for some hours, with lists within the
 * person's, kept by a secret that is drawn here and leaves only for the auth service.
 *
 * ```ts
 * const chat = await openChatSession({ exchange, space: "main", idToken });
 * const session = await connect({ servers, credentials: chat.credentials });
 * await chat.retire();
 * ```
 *
 * Invariants
 * 1. The holder's secret stays in memory: it is in no property, no text and no error.
 * 2. An opening that got no answer is asked for again under the same hash, and is the same session.
 * 3. What comes back is believed for this session only: another actor or lifecycle in an answer is a fault.
 */
import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import type { RandomBytes } from "../protocol/base/principals.ts";
import {
  ChatOpenAnswer,
  type ChatOpenRequest,
  ChatRetireAnswer,
  ChatSessionPath,
} from "../protocol/endpoint/chat-session-shapes.ts";
import { ExchangeAnswer } from "../protocol/endpoint/exchange-shapes.ts";
import { type ExchangeAt, type Exchanged, type Posted, post, refusalOf } from "./exchange.ts";
import type { BearerCredentials } from "./identity.ts";
import { tokenOf } from "./user-identity.ts";

export type ChatSessionOptions = Pick<ChatOpenRequest, "name" | "allowSubscribe" | "allowPublish" | "lifeSeconds"> & {
  /** Where the exchange is; a function is asked at each request. */
  readonly exchange: ExchangeAt | (() => ExchangeAt);
  /** A token of the space's identity provider; a fresh one where the session is opened. */
  readonly idToken: () => Promise<string>;
  readonly space: string;
  readonly signal?: AbortSignal;
  readonly random?: RandomBytes;
};

export type ChatSession = {
  readonly owner: string;
  readonly actor: string;
  readonly lifecycleUid: string;
  readonly name: string;
  /** Unix seconds; never extended. */
  readonly expiresAt: number;
  readonly allowSubscribe: readonly string[];
  readonly allowPublish: readonly string[];
  /** For `connect`. */
  readonly credentials: BearerCredentials;
  /** Ends it. What remains, if something does, is the service's to finish. */
  readonly retire: (signal?: AbortSignal) => Promise<{ readonly settled: boolean; readonly remains?: string }>;
};

const ATTEMPTS = 3;
const WAIT_MS = 500;

export async function openChatSession(options: ChatSessionOptions): Promise<ChatSession> {
  const { space, name, allowSubscribe, allowPublish, lifeSeconds, random = randomBytes } = options;
  const holderSecret = Buffer.from(random(32)).toString("base64url");
  const holderHash = createHash("sha256").update(holderSecret).digest("hex");
  const wanted = { space, holderHash, ...given({ name, allowSubscribe, allowPublish, lifeSeconds }) };
  const { signal: untilOpen } = options;
  const opened = await persistently(
    () => ask(options, ChatSessionPath.Open, wanted, ChatOpenAnswer, untilOpen),
    untilOpen,
  );
  const { owner, actor, lifecycleUid } = opened.answer;
  const own = <T extends { owner: string; actor: string; lifecycleUid: string }>(answer: T): T => {
    if (answer.owner === owner && answer.actor === actor && answer.lifecycleUid === lifecycleUid) return answer;
    throw misshapen("it answers for another session");
  };
  const holder = { space, holderSecret };
  return {
    owner,
    actor,
    lifecycleUid,
    name: opened.answer.name,
    expiresAt: opened.answer.expiresAt,
    allowSubscribe: opened.answer.allowSubscribe,
    allowPublish: opened.answer.allowPublish,
    credentials: {
      kind: "bearer",
      space,
      actor,
      fetch: async (signal): Promise<Exchanged> => {
        const { answer, date } = await ask(options, ChatSessionPath.Bearer, holder, ExchangeAnswer, signal);
        return { ...own(answer), lifeMs: answer.expiresAt * 1000 - date };
      },
    },
    retire: async (signal) => {
      const { settled, remains } = own(
        (await ask(options, ChatSessionPath.Retire, holder, ChatRetireAnswer, signal)).answer,
      );
      return { settled, ...(remains === undefined ? {} : { remains }) };
    },
  };
}

function given<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

type Answered<T> = { readonly answer: T; readonly date: number };

async function ask<Schema extends z.ZodType>(
  { exchange, idToken }: ChatSessionOptions,
  path: ChatSessionPath,
  content: object,
  schema: Schema,
  signal: AbortSignal | undefined,
): Promise<Answered<z.output<Schema>>> {
  const token = await tokenOf({ idToken });
  const at = typeof exchange === "function" ? exchange() : exchange;
  const secrets = [token, at.capability, ...("holderSecret" in content ? [String(content.holderSecret)] : [])];
  const posted = await post(at, path, { ...content, idToken: token }, secrets, signal);
  if (posted.status !== 200) throw refused(posted, secrets);
  const parsed = schema.safeParse(posted.body);
  if (!parsed.success) throw misshapen("its answer does not have its shape");
  return { answer: parsed.data, date: posted.date };
}

/** The refusal with the outcome that the service names: these routes always name one (§10). */
function refused({ status, retryAfter, body }: Posted, secrets: readonly (string | undefined)[]): CotalError {
  const error = refusalOf(status, retryAfter, body, secrets);
  const named: unknown = typeof body === "object" && body !== null ? Reflect.get(body, "outcome") : undefined;
  const outcome = Object.values(Outcome).find((one) => one === named) ?? Outcome.Unknown;
  const { code, message, next, details } = error;
  return new CotalError(code, message, { outcome, details, ...(next === undefined ? {} : { next }) });
}

/** Asks again only where nobody knows what became of the request: the same hash is the same session. */
async function persistently<T>(run: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run();
    } catch (thrown) {
      const error = toCotalError(thrown);
      if (error.outcome !== Outcome.Unknown || attempt === ATTEMPTS) throw error;
      await sleep(WAIT_MS * attempt, undefined, { signal }).catch(() => undefined);
      if (signal?.aborted === true) throw error;
    }
  }
}

function misshapen(why: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the exchange can't be understood: ${why}`, {
    outcome: Outcome.Unknown,
    next: "check its address; the auth service and this client may be of different versions",
  });
}
