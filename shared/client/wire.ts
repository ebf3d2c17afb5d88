/**
 * Headers of a message as it came: nats.js decodes them on first use and throws on a block that it
 * can't read, which any publisher can send. A callback that throws would end the connection's reader.
 */
import type { Msg, MsgHdrs } from "@nats-io/transport-node";
import { type ReadResult, RejectReason, readDelivery } from "../protocol/chat/message.ts";

export function headersOf(message: Msg): MsgHdrs | undefined | "unreadable" {
  try {
    return message.headers;
  } catch {
    return "unreadable";
  }
}

/** The status code of the broker's own answers; `undefined` for any other message. */
export function statusOf(message: Msg): number | undefined {
  const headers = headersOf(message);
  return headers === undefined || headers === "unreadable" || headers.code === 0 ? undefined : headers.code;
}

/** Reads a delivery off the wire. Never throws. */
export function readWire(message: Msg): ReadResult {
  const headers = headersOf(message);
  if (headers === "unreadable") {
    return { ok: false, reason: RejectReason.MalformedEnvelope, detail: "its headers do not parse" };
  }
  return readDelivery(message.subject, message.data, headers?.keys() ?? []);
}
