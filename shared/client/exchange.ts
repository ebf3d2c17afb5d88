/**
 * One request to the token exchange (§10): an identity token or an agent's secret in, a bearer out.
 *
 * Invariants
 * 1. Every end is a `CotalError` or an `Exchanged`; whatever the other side sends is bounded and checked.
 * 2. No token, secret, bearer or capability is part of an error, also not where the service would repeat it.
 * 3. A bearer's life is counted from what is left of it by the service's own clock: two clocks that
 *    differ never make a dead bearer look alive.
 * 4. Nothing secret goes over a plain connection, unless to this machine or on demand.
 */
import { CotalError, ErrorCode, Outcome, badRequest, isErrorCode } from "../protocol/base/errors.ts";
import { NOT_ONE_LINE } from "../protocol/base/grammar.ts";
import {
  ExchangeAnswer,
  ExchangeHeader,
  ExchangeLimited,
  ExchangePath,
  ExchangeRefusal,
  type ExchangeRequest,
} from "../protocol/endpoint/exchange-shapes.ts";

export type ExchangeAt = {
  /** `https://host[:port][/path]`; `http:` on this machine. */
  readonly url: string;
  /** The secret of a loopback face. */
  readonly capability?: string;
  /** Takes `http:` to another machine, where something else keeps the way secret. */
  readonly plaintext?: boolean;
};

export type Exchanged = ExchangeAnswer & {
  /** Milliseconds that the bearer had left, at the least, when it was asked for. */
  readonly lifeMs: number;
};

/** Kind of the detail that says how long to stay away. */
const LIMITED_DETAIL = "ai.cotal.exchange.limited";

/** Kind of the detail that says that no exchange answered. */
export const AWAY_DETAIL = "ai.cotal.exchange.away";

/** Kind of the detail that says that an exchange answered, and refused by name. */
const REFUSED_DETAIL = "ai.cotal.exchange.refused";

const MAX_ANSWER_BYTES = 128 * 1024;
const MAX_TEXT = 500;

/** Asks for a bearer once. */
export async function askExchange(at: ExchangeAt, request: ExchangeRequest, signal?: AbortSignal): Promise<Exchanged> {
  const secrets = [request.idToken, request.secret, at.capability];
  const { status, date, retryAfter, body } = await post(at, ExchangePath.Exchange, request, secrets, signal);
  if (status !== 200) throw refusalOf(status, retryAfter, body, secrets);
  const parsed = ExchangeAnswer.safeParse(body);
  if (!parsed.success) throw misshapen("its answer does not have its shape");
  if (parsed.data.actor !== request.actor) throw misshapen("it answers for another actor");
  if ("owner" in request && parsed.data.owner !== request.owner) throw misshapen("it answers for another owner");
  return { ...parsed.data, lifeMs: parsed.data.expiresAt * 1000 - date };
}

export type Posted = {
  readonly status: number;
  /** The service's own time at its latest, epoch ms; ours if it names none. */
  readonly date: number;
  readonly retryAfter: string | null;
  readonly body: unknown;
};

/** POSTs JSON to a face of the auth service and reads the bounded answer; throws if there is none. */
export function post(
  at: ExchangeAt,
  path: string,
  content: object,
  secrets: readonly (string | undefined)[],
  signal?: AbortSignal,
): Promise<Posted> {
  const headers = {
    "content-type": "application/json",
    ...(at.capability === undefined ? {} : { [ExchangeHeader.Capability]: at.capability }),
  };
  return answerOf(at, path, { method: "POST", headers, body: JSON.stringify(content) }, secrets, signal);
}

/** GETs what a face says to anybody: nothing secret is sent. */
export function getOpen(at: ExchangeAt, path: string, signal?: AbortSignal): Promise<Posted> {
  return answerOf(at, path, { method: "GET", headers: {} }, [], signal);
}

type Asked = {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
};

async function answerOf(
  at: ExchangeAt,
  path: string,
  asked: Asked,
  secrets: readonly (string | undefined)[],
  signal: AbortSignal | undefined,
): Promise<Posted> {
  const url = faceUrl(at, path);
  try {
    const response = await fetch(url, {
      ...asked,
      headers: { ...asked.headers, accept: "application/json" },
      redirect: "error",
      ...(signal === undefined ? {} : { signal }),
    });
    return {
      status: response.status,
      date: dateOf(response.headers.get("date")),
      retryAfter: response.headers.get("retry-after"),
      body: parse(await boundedText(response)),
    };
  } catch (thrown) {
    if (thrown instanceof CotalError) throw thrown;
    throw unreachable(url, thrown, secrets);
  }
}

function faceUrl({ url, plaintext = false }: ExchangeAt, path: string): URL {
  if (!URL.canParse(url)) throw badRequest("the exchange's address is no URL", "write it like https://auth.example");
  const whole = new URL(url);
  const isPlain = whole.protocol === "http:";
  if (!isPlain && whole.protocol !== "https:") throw badRequest("the exchange's address is neither https nor http");
  if (whole.username !== "" || whole.password !== "" || whole.search !== "" || whole.hash !== "") {
    throw badRequest("the exchange's address holds more than a host and a path", "leave secrets and queries out");
  }
  if (isPlain && !plaintext && !isLoopback(whole.hostname)) {
    throw new CotalError(ErrorCode.FailedPrecondition, `the exchange at ${whole.host} is not reached over TLS`, {
      outcome: Outcome.NotExecuted,
      next: "use its https address",
    });
  }
  whole.pathname = `${whole.pathname.replace(/\/+$/, "")}${path}`;
  return whole;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** The header's second is cut off: it may be later by one. */
function dateOf(header: string | null): number {
  const date = header === null ? Number.NaN : Date.parse(header);
  return Number.isNaN(date) ? Date.now() : date + 1000;
}

async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw misshapen("its answer is too long");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Codes for answers whose body does not say more. */
const BY_STATUS: ReadonlyMap<number, ErrorCode> = new Map([
  [400, ErrorCode.BadRequest],
  [401, ErrorCode.Unauthenticated],
  [403, ErrorCode.PermissionDenied],
  [404, ErrorCode.NotFound],
  [409, ErrorCode.Conflict],
  [413, ErrorCode.ResourceExhausted],
  [429, ErrorCode.ResourceExhausted],
]);

/** A refusal by its status and body: 429 carries how long to stay away. */
export function refusalOf(
  status: number,
  retryAfter: string | null,
  body: unknown,
  secrets: readonly (string | undefined)[],
): CotalError {
  if (status === 429) return limited(retryAfter, body);
  if (status < 400) return misshapen(`it answers with status ${status}`);
  const parsed = ExchangeRefusal.safeParse(body);
  if (!parsed.success || !isErrorCode(parsed.data.code)) {
    const code = BY_STATUS.get(status) ?? (status >= 500 ? ErrorCode.Unavailable : ErrorCode.BadRequest);
    return new CotalError(code, `the exchange answers with status ${status} and no reason`, {
      outcome: Outcome.NotExecuted,
      next: "check that its address is the one of the space's auth service",
    });
  }
  const { code, error, next } = parsed.data;
  return new CotalError(code, `the exchange refuses: ${clean(error, secrets)}`, {
    outcome: Outcome.NotExecuted,
    next: next === undefined ? "run cotal doctor, or ask the operator of the space" : clean(next, secrets),
    details: [{ kind: REFUSED_DETAIL }],
  });
}

function limited(retryAfter: string | null, body: unknown): CotalError {
  const parsed = ExchangeLimited.safeParse(body);
  const fromHeader = /^\d{1,5}$/.test(retryAfter ?? "") ? Number(retryAfter) : 0;
  const retryAfterSeconds = parsed.success ? parsed.data.retryAfterSeconds : Math.max(1, fromHeader);
  const limit = parsed.success ? parsed.data.limit : undefined;
  const what = parsed.success ? `connects${limit === undefined ? "" : ` of this ${limit}`}` : "requests";
  return new CotalError(ErrorCode.ResourceExhausted, `too many ${what}; the next in ${retryAfterSeconds} s`, {
    outcome: Outcome.NotExecuted,
    next: `wait ${retryAfterSeconds} s; ask less often, or ask the operator for higher limits`,
    details: [{ kind: LIMITED_DETAIL, retryAfterSeconds, ...(limit === undefined ? {} : { limit }) }],
  });
}

/** How long a 429 asks to stay away, in milliseconds; `undefined` for every other error. */
export function retryAfterMs(error: CotalError): number | undefined {
  const seconds = error.details.find(({ kind }) => kind === LIMITED_DETAIL)?.["retryAfterSeconds"];
  return typeof seconds === "number" ? seconds * 1000 : undefined;
}

/** One short line of somebody else's text, without what we sent. */
export function clean(text: string, secrets: readonly (string | undefined)[]): string {
  const known = secrets.filter((secret): secret is string => secret !== undefined && secret !== "");
  const without = known.reduce((left, secret) => left.replaceAll(secret, "..."), text);
  return without.slice(0, MAX_TEXT).toWellFormed().replace(new RegExp(NOT_ONE_LINE, "gu"), " ").trim();
}

function misshapen(why: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the exchange can't be understood: ${why}`, {
    outcome: Outcome.Unknown,
    next: "check its address; the auth service and this client may be of different versions",
  });
}

function unreachable({ host }: URL, thrown: unknown, secrets: readonly (string | undefined)[]): CotalError {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  const named = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const code = typeof named === "string" ? clean(named, secrets) : "no answer";
  // Without the cause: what a library throws may quote the request.
  return new CotalError(ErrorCode.Unavailable, `the exchange at ${host} can't be reached (${code})`, {
    outcome: Outcome.Unknown,
    next: /CERT|TLS|SSL|SIGNATURE/.test(code)
      ? "check the name and dates of its certificate; NODE_EXTRA_CA_CERTS=FILE names an authority of your own"
      : "check that the auth service runs; on this machine cotal status shows it",
    details: [{ kind: AWAY_DETAIL }],
  });
}

/** Is it the exchange that is away or refuses, and not the broker? */
export function isOfExchange(error: CotalError): boolean {
  return error.details.some(({ kind }) => kind === AWAY_DETAIL || kind === REFUSED_DETAIL);
}
