/** How many messages each subject of a stream holds, counted by the broker: no message is read. */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { apiRequest, numberIn, objectIn } from "./api.ts";

export type SubjectCounts = {
  /** Most messages first. */
  readonly of: readonly (readonly [subject: string, messages: number])[];
  /** Not: the stream has more subjects than one answer of the broker (100,000), and the rest is not there. */
  readonly whole: boolean;
};

export async function subjectCounts(nc: NatsConnection, stream: string, filter: string): Promise<SubjectCounts> {
  const body = { subjects_filter: filter };
  const answer = await apiRequest(nc, jsApi.streamInfo(stream), `count what ${stream} holds`, body);
  const { subjects } = objectIn(answer, "state");
  const of = Object.entries((subjects ?? {}) as Record<string, number>).toSorted(([, a], [, b]) => b - a);
  const total = answer["total"] === undefined ? of.length : numberIn(answer, "total");
  return { of, whole: total <= of.length };
}
