/**
 * One JetStream API request, and its answer as an object or a `CotalError`.
 *
 * A refusal says that nothing was changed; silence says that nobody knows (`errors.ts`).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { request } from "./requests.ts";
import { type ApiFault, fromApi, fromNats } from "./errors.ts";

export const API_TIMEOUT_MS = 5000;

export type Json = { readonly [key: string]: unknown };

/** Sends a request; `doing` begins the text of its error. Without a body the payload is empty. */
export async function apiRequest(
  nc: NatsConnection,
  subject: string,
  doing: string,
  body?: object,
  timeoutMs: number = API_TIMEOUT_MS,
): Promise<Json> {
  let data: Uint8Array;
  try {
    ({ data } = await request(nc, subject, body === undefined ? "" : JSON.stringify(body), { timeoutMs }));
  } catch (thrown) {
    throw fromNats(thrown, doing);
  }
  return parseAnswer(data, doing);
}

/** An answer of the API: throws what it refuses, and anything that is no answer. */
export function parseAnswer(data: Uint8Array, doing: string): Json {
  const answer = parseObject(data);
  if (answer === undefined) {
    throw new CotalError(ErrorCode.Internal, `${doing}: the broker's answer is no JSON object`, {
      outcome: Outcome.Unknown,
    });
  }
  const fault = faultOf(answer["error"]);
  if (fault !== undefined) throw fromApi(fault, doing);
  return answer;
}

const utf8 = new TextDecoder();

function parseObject(data: Uint8Array): Json | undefined {
  try {
    return asObject(JSON.parse(utf8.decode(data)));
  } catch {
    return undefined;
  }
}

export function asObject(value: unknown): Json | undefined {
  return isObject(value) ? value : undefined;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function faultOf(value: unknown): ApiFault | undefined {
  const error = asObject(value);
  if (error === undefined) return undefined;
  const { code, err_code: number, description } = error;
  return {
    code: typeof code === "number" ? code : 500,
    err_code: typeof number === "number" ? number : undefined,
    description: typeof description === "string" ? description : undefined,
  };
}

/** The object or number the API promises in its answer. */
export function objectIn(answer: Json, field: string): Json {
  return asObject(answer[field]) ?? missing(field);
}

export function numberIn(answer: Json, field: string): number {
  const value = answer[field];
  return typeof value === "number" ? value : missing(field);
}

function missing(field: string): never {
  throw new CotalError(ErrorCode.Internal, `the broker's answer lacks ${JSON.stringify(field)}`, {
    outcome: Outcome.Unknown,
  });
}
