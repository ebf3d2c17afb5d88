/** Takes one message out of a stream by its sequence: what is pinned to a sequence never hits a newer one. */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { apiRequest } from "./api.ts";
import { ApiCode, apiNumber } from "./errors.ts";
import { leaderGet } from "./leader.ts";

/** False if it was not there. */
export async function deleteMessage(nc: NatsConnection, stream: string, seq: number): Promise<boolean> {
  try {
    await apiRequest(nc, jsApi.messageDelete(stream), `delete from ${stream}`, { seq, no_erase: true });
    return true;
  } catch (error) {
    const number = apiNumber(error);
    if (number === ApiCode.NoMessageFound || number === ApiCode.SequenceNotFound) return false;
    // One number for a message that is not there and for a delete that failed: a read tells.
    if (number === ApiCode.MessageDeleteFailed && (await leaderGet(nc, stream, seq)) === undefined) return false;
    throw error;
  }
}
